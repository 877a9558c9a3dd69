"""What scripts for Accelerate import about DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer

from accel_runtime.errors import ConfigError
from accel_runtime.latest import latest
from accel_runtime.strategies.deepspeed import DeepSpeed
from accel_runtime.unsupported import absent

__all__ = ["DummyOptim", "DummyScheduler"]

__getattr__ = absent(__name__)


class DummyOptim:
    """Calling it builds the optimizer that the section `optimizer` of DeepSpeed's file describes."""

    def __new__(cls, params: Iterable[Any], lr: float = 0.001, weight_decay: float = 0, **kwargs: Any) -> Any:
        return _engine(cls).optimizer_of_file(params, lr=lr, weight_decay=weight_decay, **kwargs)


class DummyScheduler:
    """Calling it builds the schedule that the section `scheduler` of DeepSpeed's file describes, or what the callable makes."""

    def __new__(
        cls,
        optimizer: Optimizer,
        total_num_steps: int | None = None,
        warmup_num_steps: int = 0,
        lr_scheduler_callable: Callable[[Optimizer], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        return _engine(cls).scheduler_of_file(
            optimizer,
            lr_scheduler_callable,
            total_num_steps=total_num_steps,
            warmup_num_steps=warmup_num_steps,
            **kwargs,
        )


def _engine(asking: type) -> DeepSpeed:
    strategy = getattr(getattr(latest(), "_session", None), "strategy", None)
    if not isinstance(strategy, DeepSpeed):
        raise ConfigError(
            f"{asking.__name__} stands for a section of DeepSpeed's file, and the Accelerator of this script does not run "
            "on DeepSpeed; build the script's own"
        )
    return strategy
