"""What notebook_launcher refuses before it starts, and how it starts on devices that are not here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from accel_runtime import notebook
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.machine import Machine
from accel_runtime.notebook import notebook_launcher
from accel_runtime.notebook_cells import describe_first_use
from accel_runtime.options import Settings


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def test_one_process_is_a_call_with_the_settings_around_it() -> None:
    seen: list[Any] = []
    notebook_launcher(lambda *args: seen.append((args, os.environ["ACCEL_MIXED_PRECISION"])), (1, 2), 1, "bf16")
    assert seen == [((1, 2), "bf16")]
    assert "ACCEL_MIXED_PRECISION" not in os.environ


def test_arguments_are_checked_and_files_are_read() -> None:
    with pytest.raises(ConfigError, match="did you mean bf16"):
        notebook_launcher(print, num_processes=1, mixed_precision="bf61")
    Path("accel.yaml").write_text("mixed_precision: bf16\nnum_processes: 1\n")
    seen: list[str] = []
    notebook_launcher(lambda: seen.append(os.environ["ACCEL_MIXED_PRECISION"]))
    assert seen == ["bf16"]


def test_cuda_in_use_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(notebook, "cell_that_used_the_device", lambda: " (cell [3] looks like the cause: `x.cuda()`)")
    with pytest.raises(UsageError, match=r"CUDA is already in use in this notebook \(cell \[3\].*restart the kernel"):
        notebook_launcher(print, num_processes=2)


def test_a_rank_cannot_launch_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(UsageError, match="already a rank of a process group"):
        notebook_launcher(print, num_processes=2)


def test_the_first_cell_that_uses_the_gpu_is_named() -> None:
    cells = ["", "import torch", "# model.cuda()\nx = 1", "def f():\n    pass\nmodel = net.cuda()", "y.cuda()"]
    assert describe_first_use(cells) == " (cell [3] looks like the cause: `model = net.cuda()`)"
    assert describe_first_use(cells[:3]) == ""


def test_fork_where_the_device_allows_it() -> None:
    def method(kind: str, cpu: bool = False) -> str:
        return notebook._start_method(Machine(kind, ("0",), 8), Settings(cpu=cpu))

    assert [method("cuda"), method("cpu"), method("rocm"), method("xpu")] == ["fork", "fork", "spawn", "spawn"]
    assert method("xpu", cpu=True) == "fork"


def test_a_tpu_is_left_to_torch_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def spawn(function: Any, args: tuple[Any, ...], nprocs: int | None, start_method: str) -> None:
        calls.append((nprocs, start_method, os.environ["ACCEL_MIXED_PRECISION"]))
        function(0, *args)

    package, distributed, engine = (ModuleType(name) for name in ("torch_xla", "distributed", "xla_multiprocessing"))
    engine.spawn = spawn  # type: ignore[attr-defined]
    distributed.xla_multiprocessing = engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_xla", package)
    monkeypatch.setitem(sys.modules, "torch_xla.distributed", distributed)
    monkeypatch.setattr(notebook, "this_machine", lambda environ: Machine("tpu", ("0", "1", "2", "3"), 96))
    seen: list[Any] = []
    notebook_launcher(lambda *args: seen.append(args), ("a",), mixed_precision="bf16")
    notebook_launcher(lambda *args: seen.append(args), ("b",), 1, "bf16")
    assert calls == [(None, "fork", "bf16"), (1, "fork", "bf16")] and seen == [("a",), ("b",)]
