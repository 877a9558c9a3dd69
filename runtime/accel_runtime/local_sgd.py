"""Local SGD: processes train apart and average their weights now and then."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Protocol

import torch
from torch.nn import Module

from accel_runtime.errors import ConfigError


class Trainer(Protocol):
    """What is asked of the Accelerator here."""

    @property
    def use_distributed(self) -> bool: ...

    @property
    def distributed_type(self) -> str: ...

    def no_sync(self, model: Module) -> AbstractContextManager[None]: ...

    def reduce(self, tensor: Any, reduction: Any) -> Any: ...


class LocalSGD:
    """Inside it gradients stay on each process; every `local_sgd_steps` calls of `step()` the weights are averaged.

    >>> with LocalSGD(accelerator, model, local_sgd_steps=8) as local_sgd:
    ...     for batch in loader:
    ...         train_on(batch)
    ...         local_sgd.step()
    """

    def __init__(self, accelerator: Trainer, model: Module, local_sgd_steps: int, enabled: bool = True) -> None:
        if local_sgd_steps < 1:
            raise ConfigError(f"local_sgd_steps={local_sgd_steps}; it counts steps, so it is at least 1")
        if accelerator.distributed_type in ("FSDP", "DEEPSPEED"):
            raise ConfigError("LocalSGD needs a whole model on each process, and this one is sharded; use strategy ddp")
        self.accelerator = accelerator
        self.model = model
        self.every = local_sgd_steps
        self.enabled = enabled and accelerator.use_distributed
        self.steps = 0
        self._apart = ExitStack()

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._apart.enter_context(self.accelerator.no_sync(self.model))
        return self

    def step(self) -> None:
        """To be called after each step of the optimizer."""
        self.steps += 1
        if self.enabled and self.steps % self.every == 0:
            self.average()

    def average(self) -> None:
        """Every process gets the mean of all weights."""
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        with torch.no_grad():
            for weight, mean in zip(weights, self.accelerator.reduce(weights, "mean")):
                weight.copy_(mean)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.enabled:
            self._apart.close()
            if error is None:
                self.average()
