"""The CPU: many processes join through gloo."""

from __future__ import annotations

import torch

from accel_runtime.devices import Device


class Cpu(Device):
    name = "cpu"
    backend = "gloo"

    def of_rank(self, local_rank: int) -> torch.device:
        return torch.device("cpu")

    def feed(self, device: torch.device, non_blocking: bool) -> None:
        return None

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass
