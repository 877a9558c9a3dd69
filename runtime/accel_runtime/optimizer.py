"""A prepared optimizer: steps when the gradients of a whole window are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.nan_policy import NanPolicy
from accel_runtime.proxy import Proxy


class PreparedOptimizer(Proxy):
    """Is the user's optimizer in every other respect; `optimizer` is the bare one."""

    optimizer: Optimizer
    accumulation: Accumulation
    step_was_skipped = False
    nan_policy: NanPolicy | None = None

    def __init__(self, optimizer: Optimizer, accumulation: Accumulation) -> None:
        super().__init__(optimizer)
        self.__dict__.update(optimizer=optimizer, accumulation=accumulation)
        accumulation.has_optimizer = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps, unless this is inside `accumulate` and more micro-steps follow; returns what the closure returned."""
        if self.accumulation.holding:
            return None
        if self.nan_policy is not None:
            self.__dict__["step_was_skipped"] = not self.nan_policy.allows(self.optimizer)
            if self.step_was_skipped:
                return None
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not self.accumulation.holding:
            self.optimizer.zero_grad(set_to_none)
