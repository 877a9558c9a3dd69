"""A prepared optimizer: steps when the gradients of a whole window are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.nan_policy import NanPolicy
from accel_runtime.proxy import Unseen
from accel_runtime.unsupported import absent


class PreparedOptimizer(Unseen):
    """Is the user's optimizer in every other respect; `optimizer` is the bare one."""

    _is_accelerate_prepared = True
    optimizer: Optimizer
    accumulation: Accumulation
    step_was_skipped = False
    nan_policy: NanPolicy | None = None

    def __init__(self, optimizer: Optimizer, accumulation: Accumulation) -> None:
        super().__init__(optimizer)
        self.__dict__.update(optimizer=optimizer, accumulation=accumulation)
        accumulation.has_optimizer = accumulation.iterations.trains = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps, unless more micro-steps of an `accumulate` follow; returns what the closure returned."""
        iterations = self.accumulation.iterations
        iterations.work = work = iterations.work + 1
        iterations.due = False
        if self.accumulation.holding:
            return None
        if self.nan_policy is not None:
            self.__dict__["step_was_skipped"] = not self.nan_policy.allows(self.optimizer)
            if self.step_was_skipped:
                return None
        if closure is None:
            return self.optimizer.step()
        loss = self.optimizer.step(closure)
        # However often the closure ran backward: it is one step.
        iterations.work, iterations.due = work, False
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not self.accumulation.holding:
            self.optimizer.zero_grad(set_to_none)


# The name by which scripts for Accelerate ask whether an optimizer was prepared.
AcceleratedOptimizer = PreparedOptimizer

__getattr__ = absent(__name__)
