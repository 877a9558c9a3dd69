"""All exchanges of an Accelerator around the backward pass of one loss, in which only some of them may have a part.

Messages must have the same order on every process. With one model torch's order is that. With several, processes first agree
which of them the loss trains: on all, where gradients are averaged while they come; on some, where they are averaged afterwards,
one model after the other; or on none, where nothing is sent. So the halves of a GAN do not wait for each other.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Join

from accel_runtime.strategies.ddp_exchange import Exchange
from accel_runtime.strategies.ddp_graph import reached
from accel_runtime.strategies.ddp_uneven import Uneven


@dataclass
class Exchanges:
    """In the order in which they were prepared, which is the same on every process."""

    at_the_end: bool  # whether all gradients are averaged after the backward pass
    of_models: list[Exchange] = field(default_factory=list)
    loose: Exchange | None = None  # of weights without a model
    uneven: Uneven | None = None  # while processes may run out of batches
    late: list[Exchange] = field(default_factory=list)  # to average after the backward pass
    shared: list[Exchange] = field(default_factory=list)  # whose buffers are sent then

    @property
    def all(self) -> list[Exchange]:
        return self.of_models if self.loose is None else [*self.of_models, self.loose]

    @property
    def due(self) -> list[Exchange]:
        return [exchange for exchange in self.all if exchange.require_backward_grad_sync]

    def before(self, loss: Tensor) -> None:
        """Awaits the gradients of the loss."""
        self.shared = due = self.due
        trained = [exchange for exchange in due if exchange.trains]
        self.late = trained if self.at_the_end else []
        if self.uneven is not None:
            Join.notify_join_context(self.uneven)
        if self.uneven is not None or len(trained) > 1:
            trained = self._agree(dict(zip(trained, reached(loss, trained))))
        for exchange in trained:
            if exchange not in self.late:
                exchange.await_gradients()

    def after(self) -> None:
        """Averages what the backward pass did not, and shares buffers."""
        for exchange in self.all:
            exchange.complete()
        self._end(has_batch=True)

    def take_part(self) -> None:
        """Answers a backward pass of the other processes on one that has no batch for it."""
        with ExitStack() as stack:
            for exchange in self._agree({}):
                stack.enter_context(exchange.without_gradients())
            self._end(has_batch=False)

    def _agree(self, parts: dict[Exchange, bool]) -> list[Exchange]:
        """Those of which the loss has a part on any process; every process must ask."""
        everyone = self.all
        counts = torch.tensor([parts.get(exchange, False) for exchange in everyone], device=everyone[0].device).int()
        dist.all_reduce(counts)
        found = {exchange: count for exchange, count in zip(everyone, counts.tolist()) if count}
        self.late = [each for each, count in found.items() if self.at_the_end or count < dist.get_world_size()]
        if self.uneven is not None:
            self.shared = list(found)  # which those without a batch know too
        return list(found)

    def _end(self, has_batch: bool) -> None:
        for exchange in self.late:
            exchange.average()
        for exchange in self.shared:
            # Process 0 may have run out of batches.
            exchange.share_buffers(0 if self.uneven is None else exchange.source_of_buffers(has_batch))
