"""`accel launch` starts the processes that it was asked for, and ends them all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAUNCH = [sys.executable, "-m", "accel_runtime", "launch"]

WORLD = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(total)
line = f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {total.item()}"
line += f", threads {os.environ['OMP_NUM_THREADS']}, {sys.argv[1:]}, {__file__}"
open(f"rank{dist.get_rank()}.txt", "w").write(line)
dist.destroy_process_group()
"""


def launch(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment = {**clean, **variables}
    return subprocess.run(
        [*LAUNCH, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_two_processes_on_the_cpu_are_one_world(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WORLD)
    done = launch(tmp_path, "--cpu", "--num_processes", "2", "script.py", "--cpu", "x y")
    assert done.returncode == 0, done.stderr
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for rank in (0, 1):
        said = (tmp_path / f"rank{rank}.txt").read_text()
        assert said == f"rank {rank} of 2, sum 3, threads {threads}, ['--cpu', 'x y'], {tmp_path / 'script.py'}"


def test_one_process_becomes_the_script_with_no_torch_before_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, sys; print(os.getpid(), 'torch' in sys.modules, 'RANK' in os.environ)"
    )
    started = subprocess.Popen([*LAUNCH, "--cpu", "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    output, _ = started.communicate(timeout=60)
    assert output.split() == [str(started.pid), "False", "False"]


def test_the_first_rank_is_shown_and_all_where_it_is_asked_for(tmp_path: Path) -> None:
    # One write for the whole line: `print` makes several, and two processes share the stream.
    (tmp_path / "script.py").write_text(
        "import os; [os.write(n, b'rank %s\\n' % os.environb[b'RANK']) for n in (1, 2)]"
    )
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "script.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "rank 0\n", "rank 0\n")
    every = launch(tmp_path, "--cpu", "--num-processes", "2", "--show-ranks", "all", "script.py")
    assert sorted(every.stdout.splitlines()) == sorted(every.stderr.splitlines()) == ["rank 0", "rank 1"]
