"""A real notebook, executed cell by cell in a kernel, trains on two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

# Work on all threads before the launch: OpenMP's pool does not survive the fork, and a process that used it would hang.
WARM_UP = """
import logging, os, signal, torch
torch.nn.Linear(300, 300)(torch.randn(1000, 300)).sum().backward()
interrupt = signal.getsignal(signal.SIGINT)
from accel_runtime.notebook import debug_launcher, notebook_launcher
"""

TRAIN = """
def train(scale):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.nn.Linear(300, 300)(torch.randn(1000, 300)).sum().backward()
    total = torch.tensor(scale * (dist.get_rank() + 1))
    dist.all_reduce(total)
    precision = os.environ["ACCEL_MIXED_PRECISION"]
    logging.getLogger("mine").warning("logged by %d", dist.get_rank())
    print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", total.item(), precision)
    if scale < 0 and dist.get_rank() == 1:
        raise ValueError("a negative scale")
    dist.barrier()
    dist.destroy_process_group()
"""

LAUNCH = """
notebook_launcher(train, (2.0,), num_processes=2, mixed_precision="bf16")
print("left behind:", os.environ.get("ACCEL_MIXED_PRECISION"), signal.getsignal(signal.SIGINT) == interrupt)
"""

FAIL = """notebook_launcher(train, (-1.0,), num_processes=2, mixed_precision="no")"""

RESTART = """
def second_time(folder):
    import pathlib, torch.distributed as dist
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    if attempt == 0 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    print("attempt", attempt, os.environ["ACCEL_CPU"])
    dist.destroy_process_group()

notebook_launcher(second_time, (".",), num_processes=2, max_restarts=1, cpu=True, show_ranks="all")
"""

ALONE = """
notebook_launcher(lambda name: print("hello", name, os.getpid() == here), ("you",), num_processes=1)
"""


def outputs_of(cell: Any) -> str:
    return "".join(output.get("text", "") or "\n".join(output.get("traceback", [])) for output in cell.outputs)


def test_a_function_of_a_notebook_trains_on_two_processes(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    sources = [WARM_UP, TRAIN, LAUNCH, FAIL, RESTART, f"here = os.getpid()\n{ALONE}"]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    _, _, launched, failed, restarted, alone = (outputs_of(cell) for cell in notebook.cells)

    assert "rank 0 of 2 sum 6.0 bf16\n" in launched and "logged by 0\n" in launched
    assert "rank 1" not in launched and "logged by 1" not in launched
    assert "left behind: None True" in launched

    assert "ProcessFailed" in failed and "rank 1 failed: ValueError: a negative scale" in failed
    assert ", line 11, in train" in failed and "ChildFailedError" not in failed
    assert "rank 1 of 2 sum -3.0 no\n" in failed

    assert restarted.count("attempt 1 true") == 2, restarted
    assert alone == "hello you True\n"
