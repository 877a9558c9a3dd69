"""Which layers of a model compute in 8 bits; those that stay are named."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch.distributed as dist
from torch.nn import Linear, Module

from accel_runtime.errors import UsageError

MULTIPLE = 16  # of which both sizes of a layer must be one, for the hardware

log = logging.getLogger("accel_runtime")


def chosen_layers(model: Module, wanted: Callable[[Module, str], bool] | None) -> set[str]:
    """The names of the layers to convert; the first and the last stay precise, as torchao recommends."""
    # By type: a subclass may use its weight in a way of its own, as the output of nn.MultiheadAttention does.
    layers = {name: layer for name, layer in model.named_modules() if type(layer) is Linear and name}
    left = dict.fromkeys(list(layers)[:1], "the first") | dict.fromkeys(list(layers)[-1:], "the last")
    for name, layer in layers.items():
        if wanted is not None and not wanted(layer, name):
            left[name] = "as the filter says"
        elif layer.in_features % MULTIPLE or layer.out_features % MULTIPLE:
            left[name] = f"{layer.in_features} x {layer.out_features}, no multiples of {MULTIPLE}"
    chosen = layers.keys() - left.keys()
    _tell(model, len(chosen), ", ".join(f"{name} ({reason})" for name, reason in left.items()))
    return chosen


def _tell(model: Module, count: int, left: str) -> None:
    kind = type(model).__name__
    if not count and not _converted(model):
        raise UsageError(f"no Linear layer of {kind} can compute in fp8; left are {left or 'none'}; use bf16")
    if count and (not dist.is_initialized() or dist.get_rank() == 0):
        log.warning("fp8: %d Linear layers of %s compute in 8 bits; in bf16 stay %s", count, kind, left)


def _converted(model: Module) -> bool:
    """Whether another Accelerator has had this model before."""
    return any(type(layer).__name__ == "Float8Linear" for layer in model.modules())
