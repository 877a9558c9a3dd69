"""All exchanges of an Accelerator around the backward pass of one loss, in which only some of them may have a part.

Messages must have the same order on every process. With one model torch's order is that. With several, processes first agree
what the loss trains of each. Where all processes have the whole of a model, gradients are averaged while they come. Where one
has less, they are averaged afterwards, one model after the other, for no order in between would fit all. Where none has a part,
nothing is sent: the halves of a GAN do not wait for each other.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.join import Join

from accel_runtime.strategies.ddp_exchange import Exchange
from accel_runtime.strategies.ddp_graph import Part, parts
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
            trained = self._agree(dict(zip(trained, parts(loss, trained))))
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

    def _agree(self, own: dict[Exchange, Part]) -> list[Exchange]:
        """Those of which the loss has a part on any process, or may have; every process must ask."""
        everyone = self.all
        counts = torch.tensor([own.get(exchange, Part()) for exchange in everyone], device=everyone[0].device).int()
        dist.all_reduce(counts)
        # On how many processes there is a part, a whole one, and perhaps one that is hidden.
        agreed = {each: row for each, row in zip(everyone, counts.tolist()) if row[0] or row[2]}
        size, several, joining = dist.get_world_size(), len(agreed) > 1, self.uneven is not None
        self.late = [
            exchange
            for exchange, (seen, whole, _) in agreed.items()
            if self.at_the_end or ((seen or joining) and (seen < size or (several and whole < size)))
        ]
        if joining:
            self.shared = list(agreed)  # which those without a batch know too
        return list(agreed)

    def _end(self, has_batch: bool) -> None:
        for exchange in self.late:
            exchange.average()
        for exchange in self.shared:
            # Process 0 may have run out of batches.
            exchange.share_buffers(0 if self.uneven is None else exchange.source_of_buffers(has_batch))
