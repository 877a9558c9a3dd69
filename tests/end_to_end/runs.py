"""Runs whole scripts in forked processes, so that torch is imported once, and records what they train."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from tests.gpu_stand_in import gpus

PATIENCE = 240  # seconds until a script that does not end says where it stands, and is ended

# From a process of their own that runs no threads: a fork copies locks as they are, and nobody would open them.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["accel_runtime.accelerator", "accel_runtime.strategies.ddp", "torch._dynamo"])


@dataclass(frozen=True)
class Run:
    """What one process of a script did."""

    losses: tuple[str, ...]  # every value that reached a backward pass, to the bit
    output: str
    error: str


class CudaIsCpu(TorchFunctionMode):
    """Scripts that name `cuda` run on this machine: every device they ask for is the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        if func is torch._C._nn._parse_to:  # of a module
            args = tuple(_on_cpu(argument) for argument in args)
        if func is torch.Tensor.to:
            args = (args[0], *[_on_cpu(argument) for argument in args[1:]])
        return func(*args, **kwargs)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    return "cpu" if isinstance(value, int) and not isinstance(value, bool) else value


def run(
    script: Path,
    arguments: tuple[str, ...],
    folder: Path,
    processes: int = 1,
    frozen: bool = False,
    launched: bool = False,
    machine: int = 0,
    strategy: str = "",
) -> list[Run]:
    """Run a script in `folder` on one or more processes; `frozen` keeps every weight as it was built.

    A script that is `launched` finds the variables of a launcher even when it is alone. `machine` has so many GPUs that
    stand in for real ones. `strategy` is what a launcher was told.
    """
    port = _free_port()
    children = []
    for rank in range(processes):
        world = _world(rank, processes, port) if processes > 1 or launched else {}
        world |= {"ACCEL_STRATEGY": strategy} if strategy else {}
        end, other = SERVER.Pipe(duplex=False)
        child = SERVER.Process(target=_live, args=(script, arguments, folder, world, frozen, machine, other))
        child.start()
        other.close()
        children.append(end)
    return [_answer(end) for end in children]


def _answer(end: Connection) -> Run:
    try:
        return end.recv()
    except EOFError:
        return Run((), "", "the process died")


def _live(
    script: Path,
    arguments: tuple[str, ...],
    folder: Path,
    world: dict[str, str],
    frozen: bool,
    machine: int,
    end: Connection,
) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    end.send(_child(script, arguments, folder, world, frozen, machine))
    end.close()
    os._exit(0)  # nothing of what the script left is torn down


def _child(
    script: Path, arguments: tuple[str, ...], folder: Path, world: dict[str, str], frozen: bool, machine: int
) -> Run:
    losses: list[str] = []
    os.environ.update(world)
    dist.destroy_process_group = _part
    os.chdir(folder)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    # Scripts may change what the test runner set up; this process ends with them.
    output = Path(folder, f"output-{world.get('RANK', '0')}")
    error = ""
    with _recorded(losses), output.open("w") as stream, contextlib.redirect_stdout(stream):
        if frozen:
            register_optimizer_step_pre_hook(_forget_gradients)
        try:
            with gpus(machine) if machine else CudaIsCpu():
                runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            error = "" if ended.code in (None, 0) else f"exit {ended.code}"
        except BaseException:
            error = traceback.format_exc()
    return Run(tuple(losses), output.read_text(), error)


def _part(group: Any = None) -> None:
    """Leaves a group without destroying it: gloo's destructor may wait for itself while a model holds the group."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group or dist.group.WORLD))
    torch.distributed.distributed_c10d.destroy_process_group(group)


def _forget_gradients(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@contextlib.contextmanager
def _recorded(losses: list[str]) -> Iterator[None]:
    # Below every way to ask for gradients: Tensor.backward may have been looked up before this process was forked.
    plain = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            losses.append(tensor.detach().double().sum().item().hex())
        plain(tensors, *args, **kwargs)

    torch.autograd.backward = backward  # type: ignore[assignment]
    yield


def _world(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCEL_SEED": "none",  # the server's generators are those of the run that this one is compared with
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
