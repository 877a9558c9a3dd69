"""How batches reach the device: copied when they are handed out, or one ahead, beside the computation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from accel_runtime.data.iteration import Batch, Loader, Pairs, Share
from accel_runtime.tree import Tree, place

Copy = Callable[[Tree], Tree]


class SideStream(AbstractContextManager[Any], Protocol):
    """Inside it, copies are queued beside the computation."""

    def hand_over(self, batch: Tree) -> None:
        """Makes what is computed next wait for the copies so far."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The way to one device. Copies do not block where the script asked for that, or pinned the memory for it."""

    device: torch.device
    non_blocking: bool = False
    pins: bool = True  # whether pinned memory means anything to the device
    side_stream: Callable[[torch.device], SideStream] | None = None
    before_batch: Callable[[], None] | None = None

    def __call__(self, pairs: Pairs, loader: Loader) -> Pairs:
        """The same batches on the device, each with what belongs to it."""
        pinned = self.pins and bool(loader.pin_memory)
        copy = partial(place, device=self.device, non_blocking=self.non_blocking or pinned)
        # Without workers, reading ahead would draw a batch's random numbers before those of the step that precedes it.
        if self.side_stream is not None and pinned and loader.num_workers > 0:
            return _ahead(pairs, copy, self.side_stream(self.device))
        return self._at_hand_out(pairs, copy)

    def _at_hand_out(self, pairs: Pairs, copy: Copy) -> Pairs:
        for batch, share, key in pairs:
            if self.before_batch is not None:
                self.before_batch()
            yield copy(batch), share, key


def _ahead(pairs: Pairs, copy: Copy, stream: SideStream) -> Pairs:
    """The copy of the next batch is under way while the script works on this one."""
    held = _started(pairs, copy, stream)
    while held is not None:
        # Before the next copy starts: the computation must not wait for that one, too.
        stream.hand_over(held[0])
        following = _started(pairs, copy, stream)
        yield held
        held = following


def _started(pairs: Pairs, copy: Copy, stream: SideStream) -> tuple[Batch, Share | None, Any] | None:
    for batch, share, key in pairs:
        with stream:
            return copy(batch), share, key
    return None
