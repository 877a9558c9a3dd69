"""Every device that `torch.accelerator` knows: cuda and rocm, mps, xpu, tpu, npu, hpu, mtia and others that plug in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from accel_runtime.data.feeding import Feed
from accel_runtime.devices import Device
from accel_runtime.devices.streams import TorchStream
from accel_runtime.errors import ConfigError
from accel_runtime.found_accelerator import found_accelerator


@dataclass(frozen=True, slots=True)
class Traits:
    """What torch does not say about a kind of device.

    `backend`: None asks torch, which knows it for its own devices and for those that plug in properly. `numbered`:
    whether a machine may have several. `pins`: whether it copies from pinned memory by itself. `copies_beside`: whether
    batches are copied while it computes.
    """

    backend: str | None = None
    numbered: bool = True
    pins: bool = True
    copies_beside: bool = False


# A device that is not here has no peculiarity. ROCm calls itself cuda.
TRAITS = {
    "cuda": Traits(copies_beside=True),
    "mps": Traits(numbered=False, pins=False),
    "tpu": Traits(pins=False),  # whether torch_tpu copies from pinned memory is not known here; a plain copy is right
    "npu": Traits("hccl"),
    "hpu": Traits("hccl"),
    "mlu": Traits("cncl"),
    "musa": Traits("mccl"),
    "sdaa": Traits("tccl"),
}


class Native(Device):
    """The accelerator of this machine, through the one interface torch has for all of them."""

    def __init__(self) -> None:
        current = found_accelerator()
        if current is None:
            raise ConfigError("torch sees no accelerator on this machine; run on the CPU with cpu=True")
        self.name = current.type
        self.traits = TRAITS.get(self.name, Traits())
        self.backend = self.traits.backend or torch.distributed.get_default_backend_for_device(self.name)
        # Any: every device brings its own module, with the same functions by convention.
        self.module: Any = torch.get_device_module(self.name)

    def of_rank(self, local_rank: int) -> torch.device:
        count = torch.accelerator.device_count()
        if count == 1 and self.traits.numbered:
            local_rank = 0  # schedulers that bind processes show each its own device only
        if local_rank >= count:
            raise ConfigError(
                f"this process is number {local_rank} on its machine, which has {count} {self.name} "
                f"device{'s' * (count != 1)}; start at most {count} on it"
            )
        return self._current(local_rank)

    def of_number(self, number: int) -> torch.device:
        count = torch.accelerator.device_count()
        if number >= count:
            raise ConfigError(
                f"device='{self.name}:{number}' is not there: this machine has {count} {self.name} device{'s' * (count != 1)}, "
                "numbered from 0"
            )
        return self._current(number)

    def _current(self, number: int) -> torch.device:
        if not self.traits.numbered:
            return torch.device(self.name)
        torch.accelerator.set_device_index(number)
        return torch.device(self.name, number)

    def synchronize(self) -> None:
        torch.accelerator.synchronize()

    def empty_cache(self) -> None:
        self.module.empty_cache()

    def feed(self, device: torch.device, non_blocking: bool) -> Feed:
        beside = TorchStream if self.traits.copies_beside else None
        return Feed(device, non_blocking, self.traits.pins, beside)

    def random_state(self) -> Any:
        return self.module.get_rng_state()

    def restore_random_state(self, state: Any) -> None:
        self.module.set_rng_state(state)
