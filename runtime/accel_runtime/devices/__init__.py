"""The seam of devices: where tensors go and how, which backend joins processes on them, what of theirs is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.optim import Optimizer

from accel_runtime.data.feeding import Feed
from accel_runtime.tree import Tree
from accel_runtime.world import World


class Device(ABC):
    """One kind of hardware. Adding one: a file here, a line in the table of `resolve.py`, a test, its docs."""

    name: str
    backend: str  # of torch.distributed
    data_parallel = "ddp"  # the strategy by which its processes train copies of one model

    @abstractmethod
    def of_rank(self, local_rank: int) -> torch.device:
        """The device of the process with this rank on its machine; made current where that is a notion."""

    def of_number(self, number: int) -> torch.device:
        """The device with this number on the machine, which the script asked for; made current as well."""
        return self.of_rank(number)

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device has done what it was given."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Gives memory that is held for reuse back to the device."""

    def world(self, launched: World) -> World:
        """The place of this process, where the device's own runtime knows better than the launcher."""
        return launched

    def moving(self) -> AbstractContextManager[None]:
        """The region in which models are moved there: their parameters stay the objects that optimizers hold."""
        return nullcontext()

    def feed(self, device: torch.device, non_blocking: bool) -> Feed | None:
        """How batches get there; None where they already are."""
        return Feed(device, non_blocking)

    def follow(self, optimizer: Optimizer) -> None:  # noqa: B027 most devices work while they are told what to do
        """Does at each step of the optimizer what the device needs then."""

    def portable(self, value: Tree) -> Tree:
        """The value in a form that a file can hold and another machine can read."""
        return value

    def random_state(self) -> Any:
        """Its own generator's; None where it has none."""
        return None

    def restore_random_state(self, state: Any) -> None:  # noqa: B027 as above
        """Takes over what `random_state` gave."""


@contextmanager
def parameters_kept() -> Iterator[None]:
    """Inside, a move to a device with its own kind of tensor fills the parameters there are instead of making new ones.

    With new ones the optimizer would go on with the old, and tied weights would come apart.
    """
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
