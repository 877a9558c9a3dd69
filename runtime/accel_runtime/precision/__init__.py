"""The seam of precisions: in what type the forward pass runs, and how gradients survive a narrow one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

from torch.nn import Module
from torch.optim import Optimizer

from accel_runtime.accumulation import Accumulation
from accel_runtime.handlers import AutocastKwargs, Handler
from accel_runtime.optimizer import PreparedOptimizer


class Precision(ABC):
    """One way to compute."""

    name: str
    scales = False  # whether gradients are larger than they are until `unscale`

    backward: Callable[..., None] | None = None  # how a loss goes backward, where that is not `loss.backward()`

    @classmethod
    def made_for(cls, device_type: str, handlers: tuple[Handler, ...]) -> Self:
        return cls()

    @abstractmethod
    def autocast(self, settings: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """The region in which operations run in this precision."""

    def wrap_forward(self, model: Module) -> None:  # noqa: B027 full precision adds nothing
        """Makes the model's own forward run in this precision and give full precision back."""

    def convert(self, model: Module) -> None:  # noqa: B027 most precisions leave layers as they are
        """Puts layers of this precision in the place of others, over the same weights."""

    def check(self, model: Module) -> None:  # noqa: B027 most precisions take any model
        """Refuses a model that cannot be trained in this precision."""

    def prepare_optimizer(self, optimizer: Optimizer, accumulation: Accumulation) -> PreparedOptimizer:
        return PreparedOptimizer(optimizer, accumulation)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint must keep; None where there is nothing."""
        return None

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027 only fp16 has a state
        """Takes over what `state` gave."""

    def unscale(self, optimizers: tuple[PreparedOptimizer, ...]) -> None:  # noqa: B027 only fp16 scales
        """Brings gradients back to their true size, once before each step."""
