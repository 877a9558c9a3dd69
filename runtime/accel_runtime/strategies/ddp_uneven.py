"""Processes that run out of batches: they take part in the backward passes of the others, with nothing to add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable, JoinHook

from accel_runtime.strategies.ddp_exchange import Exchange


class Uneven(Joinable):
    """All exchanges of an Accelerator as one thing to join; `take_part` answers a backward pass of the others."""

    def __init__(self, exchanges: list[Exchange], take_part: Callable[[], None]) -> None:
        super().__init__()
        self.exchanges = exchanges
        self.take_part = take_part

    def join_hook(self, **_: Any) -> JoinHook:
        return _Absent(self)

    @property
    def join_device(self) -> torch.device:
        return self.exchanges[0].weights[0].device

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


class _Absent(JoinHook):
    """A process without a batch."""

    def __init__(self, uneven: Uneven) -> None:
        self.uneven = uneven

    def main_hook(self) -> None:
        self.uneven.take_part()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Weights are those of the process that trained last."""
        for exchange in self.uneven.exchanges:
            exchange._sync_final_model(is_last_joiner)  # type: ignore[no-untyped-call]
