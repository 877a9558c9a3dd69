"""The seam of devices: where tensors go, which backend joins processes on them, how their memory is freed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch


class Device(ABC):
    """One kind of hardware. Adding one: a file here, a line in the table of `resolve.py`, a test, its docs."""

    name: str
    backend: str  # of torch.distributed

    @abstractmethod
    def of_rank(self, local_rank: int) -> torch.device:
        """The device of the process with this rank on its machine; made current where that is a notion."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device has done what it was given."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Gives memory that is held for reuse back to the device."""
