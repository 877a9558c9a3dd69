"""A run that fails says which rank failed first and why, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.warm import python

LAUNCH = ["-m", "accel_runtime", "launch", "--cpu", "--num-processes", "2"]

# Both ranks say who they are through a pipe, so that the test knows when they are there; then they wait to be ended.
WAIT = """
import os, signal
with open("ready", "w") as ready:
    ready.write(f"{os.getpid()}\\n")
signal.pause()
"""

FAIL = """
import os, sys
import torch, torch.distributed as dist

def step():
    raise ValueError("a bad batch")

dist.init_process_group("gloo")
print("out of rank", os.environ["RANK"])
print("err of rank", os.environ["RANK"], file=sys.stderr)
dist.barrier()
if sys.argv[1] == "raise" and dist.get_rank() == 1:
    step()
if sys.argv[1] == "exit" and dist.get_rank() == 1:
    sys.exit("no data")
if sys.argv[1] == "leave" and dist.get_rank() == 1:
    sys.exit()
if sys.argv[1] == "loader" and dist.get_rank() == 1:
    class Killed(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            os.kill(os.getpid(), 9)
    next(iter(torch.utils.data.DataLoader(Killed(), num_workers=1)))
if sys.argv[1] == "kill" and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
dist.barrier()
"""


def failing(folder: Path, *arguments: str) -> str:
    (folder / "fail.py").write_text(FAIL)
    done = subprocess.run(
        [python(), *LAUNCH, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    return done.stderr


def test_the_first_failure_is_told_in_full_and_its_consequences_in_a_line(tmp_path: Path) -> None:
    said = failing(tmp_path, "fail.py", "raise")
    assert said.count("Traceback (most recent call last)") == 1
    assert 'File "fail.py", line 6, in step' in said
    digest = said[said.index("accel launch:") :].splitlines()
    assert digest[0] == "accel launch: rank 1 of 2 failed first: ValueError: a bad batch (fail.py:6)"
    assert digest[1].startswith("  then rank 0: ") or digest[1] == "  1 other process was ended by the launcher"
    assert len(digest) == 2
    # Rank 1 was not on the terminal: what it wrote is shown now, in the order in which it wrote it.
    words = said[said.index("accel: output of rank 1:\n") :].splitlines()
    assert words[1:3] == ["out of rank 1", "err of rank 1"] and words[3].endswith("Traceback (most recent call last):")


def test_a_rank_that_exits_is_named_before_the_errors_it_caused(tmp_path: Path) -> None:
    said = failing(tmp_path, "--tee", "fail.py", "exit")
    assert "accel launch: rank 1 of 2 failed first: SystemExit: no data (fail.py:15)" in said
    # --tee shows every rank, each line with its rank.
    assert "[rank 0] err of rank 0" in said and "[rank 1] err of rank 1" in said


def test_a_killed_rank_is_named_before_the_errors_it_caused_and_logs_are_kept(tmp_path: Path) -> None:
    said = failing(tmp_path, "--log-dir", "logs", "fail.py", "kill")
    digest = said[said.index("accel launch:") :]
    assert digest.startswith("accel launch: rank 1 of 2 failed first: process ")
    assert "was killed by SIGKILL (often the system is out of memory)" in digest.splitlines()[0]
    assert digest.rstrip().endswith("logs of every rank: logs")
    # The terminal shows the first rank, the folder has them all.
    assert "err of rank 0" in said and "err of rank 1" not in said
    for rank in "01":
        (out,) = tmp_path.glob(f"logs/*/attempt_0/{rank}/stdout.log")
        (err,) = tmp_path.glob(f"logs/*/attempt_0/{rank}/stderr.log")
        assert out.read_text() == f"out of rank {rank}\n" and f"err of rank {rank}" in err.read_text()


def test_a_rank_that_leaves_in_order_is_named_before_the_error_it_caused(tmp_path: Path) -> None:
    said = failing(tmp_path, "fail.py", "leave")
    digest = said[said.index("accel launch:") :].splitlines()
    assert digest[0].startswith("accel launch: rank 1 of 2 left first: its script ended (exit code 0)")
    assert "Traceback" not in said
    assert digest[1].startswith("  then rank 0: ")


def test_a_killed_loader_worker_is_named_with_its_rank(tmp_path: Path) -> None:
    said = failing(tmp_path, "fail.py", "loader")
    digest = said[said.index("accel launch:") :].splitlines()
    assert digest[0].startswith("accel launch: rank 1 of 2 failed first: RuntimeError: DataLoader worker (pid")


def test_the_standard_library_comes_before_the_working_folder_as_without_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "json.py").write_text("raise SystemExit('json of the working folder')")
    (tmp_path / "own.py").write_text("raise SystemExit('own of the working folder')")
    (tmp_path / "elsewhere" / "own.py").write_text("name = 'own'")
    (tmp_path / "elsewhere" / "script.py").write_text("import json, own, sys\nprint(own.name, sys.path[0])")
    command = [str(Path(sys.executable).with_name("accel")), *LAUNCH[2:], "elsewhere/script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"own {(tmp_path / 'elsewhere').resolve()}\n"


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A launcher whose two ranks are up, and these ranks."""
    (folder / "wait.py").write_text(WAIT)
    os.mkfifo(folder / "ready")
    launcher = subprocess.Popen(
        [sys.executable, *LAUNCH, "wait.py"], cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        # Opened at both ends: the first rank to close it would end the file.
        with os.fdopen(os.open(folder / "ready", os.O_RDWR)) as ready:
            ranks = [psutil.Process(int(ready.readline())) for _ in range(2)]
        yield launcher, ranks
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_every_process_without_a_traceback(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with running(tmp_path) as (launcher, ranks):
        # ctrl-C reaches the whole foreground group, a scheduler's SIGTERM the launcher alone.
        os.killpg(launcher.pid, number) if number == signal.SIGINT else launcher.send_signal(number)
        _, said = launcher.communicate(timeout=120)
        assert launcher.returncode == code
        assert said == f"accel launch: ended by {number.name}; no process is left\n"
        assert not any(rank.is_running() for rank in ranks)


def test_a_killed_launcher_leaves_no_orphans(tmp_path: Path) -> None:
    with running(tmp_path) as (launcher, ranks):
        launcher.kill()
        _, alive = psutil.wait_procs(ranks, timeout=10)
        assert not alive


# Rank 1 is killed after its sixth checkpoint of twelve, and late when all start again: with one store for all attempts,
# rank 0 would then call an address at which nobody is.
RESUMES = """
import os, sys, time
from pathlib import Path

import torch
from accel_runtime import Accelerator
from torch.utils.data import DataLoader, TensorDataset

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if attempt and rank:
    time.sleep(2)
accelerator = Accelerator(cpu=True, project_dir=sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs = torch.randn(32, 4)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
resumed = accelerator.load_state("latest", missing_ok=True)
saved = 0
for epoch in range(resumed.epoch if resumed else 0, 3):
    for batch, target in loader:
        accelerator.backward(torch.nn.functional.mse_loss(model(batch), target))
        optimizer.step()
        optimizer.zero_grad()
        accelerator.save_state()
        saved += 1
        if sys.argv[1] == "broken" and not attempt and rank and saved == 6:
            os.kill(os.getpid(), 9)
weights = [parameter.tolist() for parameter in model.parameters()]
Path(f"{sys.argv[1]}{rank}.txt").write_text(f"{saved} {weights}")
accelerator.end_training()
"""


def test_a_restarted_run_ends_as_one_that_was_never_broken(tmp_path: Path) -> None:
    (tmp_path / "resumes.py").write_text(RESUMES)
    for name in ("whole", "broken"):
        command = [python(), *LAUNCH, "--max-restarts", "1", "resumes.py", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert any(line.startswith("accel launch: rank 1 of 2 failed first: process ") for line in said)
    assert "accel launch: restart 1 of 1: all ranks start again" in said
    assert any(line.startswith("accel: resumed from ") and line.endswith("checkpoint_5, step 6") for line in said)
    assert not any("Traceback" in line for line in said)
    for rank in (0, 1):
        whole, broken = ((tmp_path / f"{name}{rank}.txt").read_text().split(" ", 1) for name in ("whole", "broken"))
        assert (whole[0], broken[0]) == ("12", "6")
        assert whole[1] == broken[1]
