"""float8: the large Linear layers multiply in 8 bits, scaled anew at every pass; all else runs in bfloat16."""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch.nn import Module

from accel_runtime.handlers import AORecipeKwargs, AutocastKwargs, Handler, TERecipeKwargs, pick
from accel_runtime.precision.autocast import Autocast
from accel_runtime.precision.fp8_torchao import Torchao
from accel_runtime.precision.fp8_transformer_engine import TransformerEngine


class Layers(Protocol):
    """A library of layers that multiply in 8 bits."""

    def convert(self, model: Module) -> None:
        """Puts such layers in the place of others, over the same weights."""

    def wrap_forward(self, model: Module) -> None:
        """Adds to the forward pass what the layers need around it."""


class Fp8(Autocast):
    """Weights and what the optimizer sees stay as they are."""

    name = "fp8"
    dtype = torch.bfloat16
    emulated = False

    def __init__(self, device_type: str, autocast: AutocastKwargs, layers: Layers) -> None:
        super().__init__(device_type, autocast)
        self.layers = layers

    @classmethod
    def made_for(cls, device_type: str, handlers: tuple[Handler, ...]) -> Self:
        asked = pick(handlers, TERecipeKwargs, None)
        recipe = pick(handlers, AORecipeKwargs, AORecipeKwargs())
        layers = TransformerEngine(asked) if asked is not None else Torchao(recipe, device_type, cls.emulated)
        return cls(device_type, pick(handlers, AutocastKwargs, AutocastKwargs()), layers)

    def convert(self, model: Module) -> None:
        self.layers.convert(model)

    def wrap_forward(self, model: Module) -> None:
        super().wrap_forward(model)
        self.layers.wrap_forward(model)


class EmulatedFp8(Fp8):
    """The same numbers on any device, computed in wider types: to try it out, for it is slower than bf16."""

    emulated = True
