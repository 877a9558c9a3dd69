"""Layers in 8 bits from torchao."""

from __future__ import annotations

import dataclasses
import importlib.util

from torch.nn import Module

from accel_runtime.errors import ConfigError
from accel_runtime.handlers import AORecipeKwargs
from accel_runtime.precision.fp8_layers import chosen_layers


class Torchao:
    """Its layers keep the names in a model's state: what is saved in fp8 loads without it."""

    def __init__(self, recipe: AORecipeKwargs, device_type: str, emulated: bool) -> None:
        if importlib.util.find_spec("torchao") is None:
            raise ConfigError("mixed_precision='fp8' needs torchao; pip install torchao, or use bf16")
        if not emulated:
            check_hardware(device_type)
        self.recipe = recipe
        self.emulated = emulated

    def convert(self, model: Module) -> None:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = self.recipe.config or Float8LinearConfig()
        if self.emulated:
            config = dataclasses.replace(config, emulate=True)
        chosen = chosen_layers(model, self.recipe.module_filter_func)
        convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name in chosen)

    def wrap_forward(self, model: Module) -> None:
        """Its layers need nothing around them."""


def check_hardware(device_type: str) -> None:
    """Refuses devices that cannot multiply in 8 bits; on others that would be emulated, and nobody has asked for it."""
    from torchao.utils import is_MI300, is_sm_at_least_89

    if device_type != "cuda" or not (is_sm_at_least_89() or is_MI300()):
        raise ConfigError(
            "mixed_precision='fp8' needs a GPU that multiplies in 8 bits (NVIDIA from compute capability 8.9, AMD MI300), "
            f"and this {device_type} does not; use bf16, or fp8-emulated to try it out slowly"
        )
