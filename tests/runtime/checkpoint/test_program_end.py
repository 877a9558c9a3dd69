"""A save without waiting is kept though the program ends at once, and one that cannot be kept is told by the exit code."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.checkpoint.threads import started
from torch import nn

PROGRAM = """
import atexit, sys, torch
from torch import nn
from accel_runtime import Accelerator

{early}
accelerator = Accelerator(cpu=True, project_dir=sys.argv[1])
model = nn.Linear(300, 300)
with torch.no_grad():
    model.weight.fill_(7)
accelerator.prepare(model)
{late}
"""
ENDS = {
    "without waiting": ("", "accelerator.save_state(wait=False)"),
    "at exit": ("", "atexit.register(accelerator.save_state)"),
    "at exit, without waiting": ("", "atexit.register(accelerator.save_state, wait=False)"),
    "at exit, said early": ("atexit.register(lambda: accelerator.save_state(wait=False))", ""),
    "from a daemon thread": (
        "import threading",
        "thread = threading.Thread(target=accelerator.save_state, kwargs={'wait': False}, daemon=True)\n"
        "thread.start()\nthread.join()",
    ),
    "and fails": ("", "accelerator.save_state(wait=False)\nraise SystemExit(3)"),
}


def ended(project: Path, early: str, late: str) -> subprocess.CompletedProcess:
    program = [sys.executable, "-c", PROGRAM.format(early=early, late=late), str(project)]
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("how", ENDS)
def test_a_checkpoint_at_the_end_of_a_program_is_kept(how: str, tmp_path: Path) -> None:
    end = ended(tmp_path, *ENDS[how])
    assert end.stderr == "" and end.returncode == (3 if how == "and fails" else 0)
    accelerator = Accelerator(cpu=True, project_dir=tmp_path)
    model = accelerator.prepare(nn.Linear(300, 300))
    accelerator.load_state()
    assert torch.equal(model.weight, torch.full((300, 300), 7.0))


def test_a_checkpoint_that_could_not_be_kept_is_told_by_the_exit_code(tmp_path: Path) -> None:
    late = """
from accel_runtime.checkpoint import writing
def fail(*_): raise OSError(28, "No space left on device")
writing._write = fail
accelerator.save_state(wait=False)
print("done")
"""
    end = ended(tmp_path, "", late)
    assert "the last checkpoint was not saved:" in end.stderr and "No space left on device" in end.stderr
    assert end.stdout == "done\n" and end.returncode == 1


def test_a_program_waits_for_a_write_that_a_daemon_thread_began() -> None:
    begun: list[bool] = []

    def begin() -> None:
        writer = started(lambda: None)
        assert writer is not None
        begun.append(writer.daemon)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    thread.join()
    assert begun == [False]
