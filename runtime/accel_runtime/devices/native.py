"""Every device that `torch.accelerator` knows: cuda and rocm, mps, xpu, npu, hpu, mtia and others that plug in."""

from __future__ import annotations

import torch

from accel_runtime.devices import Device
from accel_runtime.errors import ConfigError


class Native(Device):
    """The accelerator of this machine, through the one interface torch has for all of them."""

    def __init__(self) -> None:
        current = torch.accelerator.current_accelerator()
        if current is None:
            raise ConfigError("torch sees no accelerator on this machine; run on the CPU with cpu=True")
        self.name = current.type
        self.backend = torch.distributed.get_default_backend_for_device(current.type)

    def of_rank(self, local_rank: int) -> torch.device:
        if self.name == "mps":
            return torch.device("mps")
        count = torch.accelerator.device_count()
        if count == 1:
            local_rank = 0  # schedulers that bind processes show each its own device only
        if local_rank >= count:
            raise ConfigError(
                f"this process is number {local_rank} on its machine, which has {count} {self.name} devices; "
                f"start at most {count} processes on it"
            )
        torch.accelerator.set_device_index(local_rank)
        return torch.device(self.name, local_rank)

    def synchronize(self) -> None:
        torch.accelerator.synchronize()

    def empty_cache(self) -> None:
        torch.get_device_module(self.name).empty_cache()
