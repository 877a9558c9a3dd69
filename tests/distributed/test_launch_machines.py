"""Two machines, played by two network namespaces that a virtual cable joins: one world, which falls and rises whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "launched"

# Rank 3, on the second machine, is killed once; the file tells the attempts apart.
KILLED_ONCE = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
first = not Path("killed").exists()
dist.init_process_group("gloo")
dist.barrier()
if first and rank == 3:
    Path("killed").touch()
    os.kill(os.getpid(), 9)
dist.barrier()
Path(f"done{rank}").touch()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Machine:
    name: str
    rank: int

    def launch(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        flags = ["--cpu", "--num-machines", "2", "--num-processes", "4", "--main-process-ip", "10.213.7.1"]
        inside = ["ip", "netns", "exec", self.name, sys.executable, "-m", "accel_runtime", "launch", *flags]
        command = [*inside, "--machine-rank", str(self.rank), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    names = [f"accel{os.getpid()}{letter}" for letter in "ab"]
    missing = "iproute2 is missing" if shutil.which("ip") is None else ip("netns", "add", names[0]).stderr.strip()
    if missing and "LAUNCHERS_REQUIRED" in os.environ:
        pytest.fail(missing)
    if missing:
        pytest.skip(f"no network namespaces here ({missing}); make test-launchers, as root, needs them")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for rank, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.213.7.{rank + 1}/24", "dev", "cable")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "cable", "up")
        yield Machine(names[0], 0), Machine(names[1], 1)
    finally:
        for name in names:
            ip("netns", "delete", name)


def on_both(machines: tuple[Machine, Machine], folder: Path, *arguments: str) -> list[tuple[int, str, str]]:
    launchers = [machine.launch(folder, *arguments) for machine in machines]
    texts = [launcher.communicate(timeout=300) for launcher in launchers]
    return [(launcher.returncode, out, err) for launcher, (out, err) in zip(launchers, texts)]


def test_two_machines_train_as_four_local_processes_do(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    train = str(HERE / "train.py")
    local = [sys.executable, "-m", "accel_runtime", "launch", "--cpu", "--num-processes", "4", train]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    here = subprocess.run(local, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert here.stdout.startswith("4 processes: "), here.stderr
    (first, out, err), (second, nothing, _) = on_both(machines, tmp_path, train)
    assert (first, second) == (0, 0), err
    assert out == here.stdout and nothing == ""


def test_a_killed_rank_ends_the_run_on_both_machines(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED_ONCE)
    (first, _, there), (second, _, here) = on_both(machines, tmp_path, "script.py")
    assert (first, second) == (1, 1)
    assert "accel launch: rank 3 of 4 failed first: process" in here and "was killed by SIGKILL" in here
    assert "accel launch: rank" in there
    assert not list(tmp_path.glob("done*"))


def test_with_restarts_both_machines_begin_again(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED_ONCE)
    (first, _, there), (second, _, here) = on_both(machines, tmp_path, "--max-restarts", "1", "script.py")
    assert (first, second) == (0, 0), there + here
    assert sorted(path.name for path in tmp_path.glob("done*")) == ["done0", "done1", "done2", "done3"]
