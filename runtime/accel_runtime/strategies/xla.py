"""Data parallel on XLA: every process holds the whole model, and gradients are averaged just before they are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch_xla.core import xla_model

from accel_runtime.strategies import Bundle, Strategy


class XlaDataParallel(Strategy):
    """The averaging is part of the recorded program, so nothing wraps the models."""

    name = "ddp"
    exchanges_gradients = True

    def __init__(self) -> None:
        self._deferred = False
        self._optimizers: list[Optimizer] = []
        self._averaged: set[Optimizer] = set()  # whose gradients are those of all processes until they step

    def prepare(self, bundle: Bundle, evaluation: bool = False) -> Bundle:
        for model in bundle.models:
            # As DDP does: all processes begin with the weights of the first.
            xla_model.broadcast_master_param(model)
        for optimizer in bundle.optimizers:
            optimizer.register_step_pre_hook(lambda one, *_: self._average(one))
            optimizer.register_step_post_hook(lambda one, *_: self._averaged.discard(one))
            self._optimizers.append(optimizer)
        return bundle

    def defer(self, models: tuple[Module, ...], deferred: bool) -> None:
        self._deferred = deferred

    def clip_norm(self, parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float) -> Tensor:
        return super().clip_norm(self._averaged_all(parameters), max_norm, norm_type)

    def clip_value(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        super().clip_value(self._averaged_all(parameters), clip_value)

    def _averaged_all(self, parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
        """The parameters, with the gradients of all processes: what is clipped must be what is stepped with."""
        weights = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        wanted = {id(weight) for weight in weights}
        for optimizer in () if self._deferred else self._optimizers:
            if any(id(weight) in wanted for group in optimizer.param_groups for weight in group["params"]):
                self._average(optimizer)
        return weights

    def _average(self, optimizer: Any) -> None:
        if optimizer not in self._averaged:
            xla_model.reduce_gradients(optimizer)
            self._averaged.add(optimizer)
