"""This process among the others: who it is, what it alone does, what they do together."""

from __future__ import annotations

import builtins
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist

from accel_runtime.collectives import Collectives, Reduction
from accel_runtime.data.split import part_of
from accel_runtime.found_accelerator import found_accelerator
from accel_runtime.tree import Tree
from accel_runtime.world import World

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class DistributedType(StrEnum):
    """How a run is spread, in the words that scripts compare with."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    MULTI_HPU = "MULTI_HPU"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"
    XLA = "XLA"
    TPU = XLA  # as older scripts call it
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_NEURON = "MULTI_NEURON"
    MEGATRON_LM = "MEGATRON_LM"


class Processes:
    """What an Accelerator knows about processes, and all that a script without training needs."""

    def __init__(self, world: World, device: torch.device, collectives: Collectives, strategy: str = "") -> None:
        self._world = world
        self._device = device
        self._collectives = collectives
        self._engine = DistributedType.__members__.get(strategy.upper())
        self._triggered = False

    def __repr__(self) -> str:
        """The lines that scripts log."""
        backend = f"  Backend: {dist.get_backend()}" if self.use_distributed and dist.is_initialized() else ""
        return (
            f"Distributed environment: {self.distributed_type}{backend}\n"
            f"Num processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self._device

    @property
    def num_processes(self) -> int:
        """How many processes take part, on all machines."""
        return self._world.size

    @property
    def process_index(self) -> int:
        """The rank of this process: 0 to `num_processes - 1`."""
        return self._world.rank

    @property
    def local_process_index(self) -> int:
        """The rank of this process on its machine."""
        return self._world.local_rank

    @property
    def local_num_processes(self) -> int:
        """How many processes run on this machine."""
        return self._world.local_size

    @property
    def is_main_process(self) -> bool:
        """Whether this is process 0 of the whole run."""
        return self._world.is_main

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first process of its machine."""
        return self._world.is_local_main

    @property
    def is_last_process(self) -> bool:
        """Whether this is the process with the highest rank."""
        return self._world.is_last

    @property
    def use_distributed(self) -> bool:
        """Whether there are several processes."""
        return self._world.size > 1

    @property
    def distributed_type(self) -> DistributedType:
        """How the run is spread, in Accelerate's words."""
        if self._engine is not None:
            return self._engine
        if not self.use_distributed:
            return DistributedType.NO
        if self._device.type == "xla":
            return DistributedType.XLA
        kind = {"cuda": "GPU", "mps": "GPU"}.get(self._device.type, self._device.type.upper())
        return DistributedType(f"MULTI_{kind}")

    @distributed_type.setter
    def distributed_type(self, shown: DistributedType) -> None:
        """What is said from now on; how a run is spread is decided when it begins."""
        if shown != self.distributed_type:
            warnings.warn(
                f"distributed_type={shown} changes what is said about this run, which goes on as {self.distributed_type}",
                stacklevel=2,
            )
        self._engine = DistributedType(shown)

    @property
    def backend(self) -> str | None:
        """What the processes speak through; None where there is no group."""
        return dist.get_backend() if dist.is_initialized() else None

    @property
    def debug(self) -> bool:
        """Whether every collective is compared between the processes before it runs."""
        return type(self._collectives) is not Collectives

    @property
    def default_device(self) -> torch.device:
        """The device of this machine, whatever this run was asked to use."""
        return found_accelerator() or torch.device("cpu")

    def set_device(self) -> None:
        """Makes this process's device the one that torch means by its kind alone."""
        if self._device.type not in ("cpu", "mps", "xla"):
            torch.accelerator.set_device_index(self._device.index or 0)

    def destroy_process_group(self, group: Any = None) -> None:
        """Ends the group of the processes, or another that the script has made."""
        if dist.is_initialized():
            dist.destroy_process_group(group)

    def print(self, *values: Any, **kwargs: Any) -> None:
        """Prints once on each machine."""
        if self.is_local_main_process:
            builtins.print(*values, **kwargs)

    def wait_for_everyone(self) -> None:
        """Returns when every process has come here."""
        self._collectives.barrier()

    def gather(self, tensor: Tree) -> Tree:
        """The tensors of all processes, joined in their first dimension; on one process, what was given."""
        return self._collectives.gather(tensor)

    def reduce(self, tensor: Tree, reduction: Reduction = "sum", scale: float = 1.0) -> Tree:
        """The tensors of all processes summed, averaged, or their largest or smallest values."""
        return self._collectives.reduce(tensor, reduction, scale)

    def broadcast(self, tensor: Tree, from_process: int = 0) -> Tree:
        """The tensors as one process has them."""
        return self._collectives.broadcast(tensor, from_process)

    def pad_across_processes(self, tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
        """The tensors made as long in `dim` as the longest of all processes, so that they can be gathered."""
        return self._collectives.pad(tensor, dim, pad_index, pad_first)

    def gather_object(self, items: list[Any]) -> list[Any]:
        """The items of all processes in one list."""
        return [item for part in self._collectives.gather_objects(items) for item in part]

    def broadcast_object_list(self, objects: list[Any], from_process: int = 0) -> list[Any]:
        """Fills the list with what one process has in it."""
        return self._collectives.broadcast_objects(objects, from_process)

    def set_trigger(self) -> None:
        """Raises a flag that every process sees at its next `check_trigger`."""
        self._triggered = True

    def check_trigger(self) -> bool:
        """Whether any process raised the flag, which is then lowered; every process must ask."""
        raised = self._collectives.any(self._triggered)
        self._triggered = self._triggered and not raised
        return raised

    def on_main_process(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
        """Decorator: only process 0 runs the function; the others return None."""
        return _only(self.is_main_process, function)

    def on_local_main_process(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
        """Decorator: only the first process of each machine runs the function."""
        return _only(self.is_local_main_process, function)

    def on_last_process(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
        """Decorator: only the process with the highest rank runs the function."""
        return _only(self.is_last_process, function)

    def on_process(
        self, function: Callable[Arguments, Result] | None = None, process_index: int = 0
    ) -> Callable[..., Any]:
        """Decorator: only the process with this rank runs the function."""
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return _only(self.process_index == process_index, function)

    def on_local_process(
        self, function: Callable[Arguments, Result] | None = None, local_process_index: int = 0
    ) -> Callable[..., Any]:
        """Decorator: only the process with this rank on its machine runs the function."""
        if function is None:
            return functools.partial(self.on_local_process, local_process_index=local_process_index)
        return _only(self.local_process_index == local_process_index, function)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The main process goes through the body before the others do: it downloads, they find it cached."""
        with self._first(self.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """As `main_process_first`, for the first process of each machine."""
        with self._first(self.is_local_main_process):
            yield

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """This process's part of a list, tuple, tensor, dictionary of these, or dataset."""
        yield part_of(inputs, self.process_index, self.num_processes, apply_padding)

    @contextmanager
    def _first(self, first: bool) -> Iterator[None]:
        if not first:
            self.wait_for_everyone()
        try:
            yield
        finally:
            # Also after an exception: the others wait here.
            if first:
                self.wait_for_everyone()


def _only(here: bool, function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | None:
        return function(*args, **kwargs) if here else None

    return call
