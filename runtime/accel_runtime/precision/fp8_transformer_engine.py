"""Layers in 8 bits from NVIDIA's Transformer Engine. Tested with an imitation only: it installs on NVIDIA's GPUs."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from torch.nn import Linear, Module

from accel_runtime.errors import ConfigError
from accel_runtime.handlers import TERecipeKwargs
from accel_runtime.precision.fp8_layers import chosen_layers


class TransformerEngine:
    def __init__(self, recipe: TERecipeKwargs) -> None:
        if importlib.util.find_spec("transformer_engine") is None:
            raise ConfigError(
                "TERecipeKwargs asks for Transformer Engine, which is not installed; install transformer-engine, or leave "
                "the handler out and fp8 goes through torchao"
            )
        self.recipe = recipe

    def convert(self, model: Module) -> None:
        for name in chosen_layers(model, None):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, _converted(model.get_submodule(name)))

    def wrap_forward(self, model: Module) -> None:
        model.forward = self._within_recipe(model.forward)

    def _within_recipe(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        import transformer_engine.pytorch as engine
        from transformer_engine.common import recipe

        scaling = recipe.DelayedScaling(
            margin=self.recipe.margin,
            fp8_format=recipe.Format[self.recipe.fp8_format],
            amax_history_len=self.recipe.amax_history_len,
            amax_compute_algo=self.recipe.amax_compute_algo,
        )

        @functools.wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Any:
            with engine.fp8_autocast(enabled=True, fp8_recipe=scaling):
                return forward(*args, **kwargs)

        return call


def _converted(layer: Module) -> Module:
    """The engine's layer over the very same weights: the optimizer holds on to them."""
    import transformer_engine.pytorch as engine

    assert isinstance(layer, Linear)
    fast: Module = engine.Linear(
        layer.in_features, layer.out_features, bias=layer.bias is not None, params_dtype=layer.weight.dtype
    )
    fast.weight, fast.bias = layer.weight, layer.bias
    return fast
