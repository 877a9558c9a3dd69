"""The exchange of a model's gradients: torch's DDP as the owner of hooks and messages, whose forward nobody calls.

The model itself is left as it is. What DDP does around its forward pass is done around the backward pass of the loss. So it does
not matter by which name or method the loss was made, and a forward pass alone never waits for another process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from accel_runtime.strategies.ddp_freezing import exchange_anew, thawed, trained
from accel_runtime.strategies.ddp_unused import complete, give_nothing


class Exchange(DistributedDataParallel):
    """Broadcasts the model's weights of process 0, and averages gradients in the backward passes that it awaits."""

    def __init__(self, model: Module, **settings: Any) -> None:
        vars(self)["_model"] = weakref.ref(model)
        with thawed(model):
            super().__init__(model, **settings)
        del self._modules["module"]
        self.weights = list(model.parameters())
        self._asked = [weight.requires_grad for weight in self.weights]
        self.trained = trained(model)

    @property
    def module(self) -> Any:
        """The model, which is the script's: it is not held here."""
        return self._model()  # type: ignore[operator]

    @property
    def trains(self) -> bool:
        return any(weight.requires_grad for weight in self.weights)

    def await_gradients(self) -> None:
        """The gradients of the next backward pass are averaged as they come."""
        self._follow_freezing()
        self.reducer.prepare_for_backward([])

    def complete(self) -> None:
        """Ends the exchange of a backward pass in which some weights had no part."""
        complete(self)
        # Once, in the order of the first pass; now, when the memory of the forward pass is free again.
        self.reducer._rebuild_buckets()

    def average(self) -> None:
        """Averages the gradients that are there now, in the same order of messages on every process."""
        self.await_gradients()
        give_nothing(self, self.trained)
        self.complete()

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        """Here this process has none to give."""
        kept = [weight.grad for weight in self.weights]
        for weight in self.weights:
            weight.grad = None
        yield
        for weight, gradient in zip(self.weights, kept):
            weight.grad = gradient

    def share_buffers(self, source: int) -> None:
        """Running statistics and other buffers become those of one process."""
        if not self.broadcast_buffers:
            return
        self._assign_modules_buffers()  # type: ignore[no-untyped-call]
        if buffers := tuple(self.modules_buffers):
            # Another backward pass through the same graph must not take them for changed.
            with torch.no_grad(), _unsafe_preserve_version_counter(buffers):
                self._sync_module_buffers(source)  # type: ignore[no-untyped-call]

    def source_of_buffers(self, has_batch: bool) -> int:
        """One of the processes that still have batches; every process must ask."""
        return self._find_common_rank(self._distributed_rank, has_batch)  # type: ignore[no-untyped-call, no-any-return]

    def _follow_freezing(self) -> None:
        """Weights that the script froze or thawed since: gradients of those that it trains now are averaged."""
        asked = [weight.requires_grad for weight in self.weights]
        if asked != self._asked:
            self._asked = asked
            self.trained = trained(self.module)
            exchange_anew(self)
