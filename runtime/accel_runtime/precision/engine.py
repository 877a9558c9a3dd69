"""Precisions under an engine that scales losses and leaves out steps by itself: here is only how forward runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.precision.autocast import Autocast
from accel_runtime.precision.bf16 import Bf16
from accel_runtime.precision.fp8 import EmulatedFp8, Fp8
from accel_runtime.precision.full import Full


class EngineStepped(PreparedOptimizer):
    """Knows whether the engine took the step: it leaves those out whose gradients are not finite."""

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        holding = self.accumulation.holding
        super().step(closure)
        if not holding:
            self.__dict__["step_was_skipped"] = self.optimizer.skipped  # type: ignore[attr-defined]


class InEngine:
    def prepare_optimizer(self, optimizer: Optimizer, accumulation: Accumulation) -> PreparedOptimizer:
        return EngineStepped(optimizer, accumulation)


class EngineFull(InEngine, Full):
    pass


class EngineBf16(InEngine, Bf16):
    pass


class EngineFp16(InEngine, Autocast):
    name = "fp16"
    dtype = torch.float16


class EngineFp8(InEngine, Fp8):
    pass


class EngineEmulatedFp8(InEngine, EmulatedFp8):
    pass
