"""The seam of strategies: how models are spread over processes, and how their gradients come together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from accel_runtime.handlers import Handler
from accel_runtime.options import Options


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one call of `prepare` got; strategies that shard weights need models and optimizers together."""

    models: tuple[Module, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    loaders: tuple[DataLoader[Any], ...] = ()


class Strategy(ABC):
    """One way to spread. Adding one: a file here, a line in the table of `resolve.py`, a test, its docs."""

    name: str
    exchanges_gradients = False

    @classmethod
    def made_for(cls, options: Options, handlers: tuple[Handler, ...]) -> Self:
        return cls()

    @abstractmethod
    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        """The models wrapped and the optimizers fitted to them, each at its place in the bundle."""

    def backward(self, scaled: Callable[..., None] | None) -> Callable[..., None] | None:
        """How a loss goes backward, given how the precision does it; None is `loss.backward()`."""
        return scaled

    def unwrap(self, model: Module) -> Module:
        """The model that the user wrote."""
        return model

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:  # noqa: B027 nothing to turn off where nothing is exchanged
        """Turns the exchange of gradients off, or on again."""

    def clip_norm(self, parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def clip_value(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def state_dict(self, model: Module) -> dict[str, Any]:
        """The whole state on every process, with the keys of the model that the user wrote."""
        return self.unwrap(model).state_dict()

    def sync_next_backward(self, model: Module) -> None:  # noqa: B027 as above
        """Makes the next backward exchange gradients though the forward ran under `no_sync`."""

    def register_forward_method(self, model: Module, name: str) -> None:  # noqa: B027 as above
        """Makes the backward pass of a loss that this method made exchange gradients, as that of a forward does."""

    def join(self, models: list[Module]) -> AbstractContextManager[Any]:
        """A region in which processes may run out of data at different times."""
        return nullcontext()

    @contextmanager
    def no_sync(self, model: Module) -> Any:
        self.defer((model,), True)
        try:
            yield
        finally:
            self.defer((model,), False)


def bare(model: Module) -> Module:
    """The model inside a compiled one."""
    inner = model.__dict__.get("_modules", {}).get("_orig_mod")
    return model if inner is None else inner
