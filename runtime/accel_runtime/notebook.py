"""Training from a notebook: a function of the notebook on many processes, its errors shown in the cell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from accel_runtime.config_file import config_files
from accel_runtime.errors import UsageError
from accel_runtime.launch.function import FunctionLaunch, run_function, variables
from accel_runtime.launch.network import require_free
from accel_runtime.machine import Machine, this_machine
from accel_runtime.notebook_cells import cell_that_used_the_device
from accel_runtime.options import Settings, as_environment, environment_layer, script_layer, settle

# Devices whose driver does not survive a fork.
SPAWN_ONLY = ("rocm", "xpu")


def notebook_launcher(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    num_processes: int | None = None,
    mixed_precision: str | None = None,
    use_port: int | str = 0,
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "c10d",
    rdzv_endpoint: str = "",
    rdzv_conf: Mapping[str, Any] | None = None,
    rdzv_id: str = "accel-notebook",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
    cpu: bool | None = None,
    start_method: str | None = None,
    show_ranks: str | None = None,
) -> None:
    """Call `function(*args)` on `num_processes` processes, and return when all have.

    The count is for this machine; with `num_nodes` above 1 every machine runs the same cell with its `node_rank`. The
    cell shows what the first process of the machine prints, with `show_ranks="all"` what every process does.

    >>> notebook_launcher(print, ("hello",), num_processes=1)
    hello
    """
    said = {"mixed_precision": mixed_precision, "cpu": cpu, "num_processes": num_processes, "show_ranks": show_ranks}
    files = [file.layer() for file in config_files(os.environ)]
    settled = settle([script_layer(said), environment_layer(os.environ), *files])
    settings, machine = settled.settings, this_machine(os.environ)
    count = settings.num_processes or (1 if settings.cpu else max(1, len(machine.devices)))
    if machine.kind == "tpu" and not settings.cpu:
        with variables(as_environment(settled)):
            return _run_on_tpu(function, args, settings.num_processes)
    if count * num_nodes == 1:
        with variables(as_environment(settled)):
            function(*args)
        return None
    launch = FunctionLaunch(
        local_processes=count,
        machines=num_nodes,
        machine_rank=node_rank,
        backend=rdzv_backend,
        endpoint=rdzv_endpoint or _endpoint(num_nodes, master_addr, int(use_port), rdzv_backend),
        configuration=dict(rdzv_conf or {}),
        # On one machine nobody else must know it, and each run has its own.
        run_id=rdzv_id if num_nodes > 1 else f"{rdzv_id}-{uuid4().hex}",
        max_restarts=max_restarts,
        monitor_interval=monitor_interval,
        log_line_prefix_template=log_line_prefix_template,
        start_method=start_method or _start_method(machine, settings),
        show_ranks=settings.show_ranks,
    )
    _require_clean_start(launch.start_method)
    with variables({**as_environment(settled), **launch.environment(os.environ, machine.cores)}):
        run_function(function, args, launch)
    return None


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> None:
    """Call `function(*args)` on CPU processes, to see how it behaves when distributed: what each of them prints, too."""
    notebook_launcher(function, args, num_processes, cpu=True, show_ranks="all")


def _endpoint(machines: int, address: str, port: int, backend: str) -> str:
    """Where the processes meet: a free port here, unless several machines or the static backend need a known one."""
    if machines == 1 and port:
        require_free(port)
    known = machines > 1 or backend == "static"
    return f"{address if machines > 1 else 'localhost'}:{port or (29500 if known else 0)}"


def _start_method(machine: Machine, settings: Settings) -> str:
    """Fork where the device allows: a spawned process cannot import what a notebook defines."""
    return "spawn" if machine.kind in SPAWN_ONLY and not settings.cpu else "fork"


def _require_clean_start(start_method: str) -> None:
    """Refuse to fork a process in which a device or a process group is in use, before anything has started."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise UsageError(
            "this process is already a rank of a process group, which its copies would share; restart the kernel, and "
            "create the Accelerator inside the function"
        )
    if start_method == "fork" and torch.cuda.is_initialized():
        raise UsageError(
            f"CUDA is already in use in this notebook{cell_that_used_the_device()}, and forked processes cannot use it "
            "then; restart the kernel, move what touches the GPU into the function, and run the cells again"
        )


def _run_on_tpu(function: Callable[..., Any], args: tuple[Any, ...], count: int | None) -> None:
    """One process for each chip: torch_xla allows 1 or all of them."""
    from torch_xla.distributed import xla_multiprocessing

    xla_multiprocessing.spawn(_WithoutIndex(function), args=args, nprocs=1 if count == 1 else None, start_method="fork")


class _WithoutIndex:
    """Drops the process index that torch_xla puts before the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, index: int, *args: Any) -> None:
        self.function(*args)
