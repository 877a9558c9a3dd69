"""Weights that a loss trains and whose gradients nobody exchanges: they would part from process to process in silence."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Collection

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from accel_runtime.errors import UsageError
from accel_runtime.strategies.ddp_graph import leaves

SHOWN = 3  # shapes in a message


def refuse_strays(loss: Tensor, exchanged: Collection[int]) -> None:
    """Refuses weights that an optimizer steps, and warns of those that none does: they may be changed by hand, or not at all.

    An input that requires a gradient, as adversarial examples do, is not a `Parameter`.
    """
    strays = {id(leaf): leaf for leaf in leaves(loss) if isinstance(leaf, Parameter) and id(leaf) not in exchanged}
    if not strays:
        return
    for optimizer in _living_optimizers():
        stepped = [weight for group in optimizer.param_groups for weight in group["params"] if id(weight) in strays]
        if stepped:
            raise UsageError(
                f"the loss trains {_described(stepped)} that {type(optimizer).__name__} steps and whose gradients nobody "
                "exchanges, so they would differ from process to process; pass their model to prepare(), or the optimizer "
                "when it has all its weights"
            )
    warnings.warn(
        f"the loss trains {_described(list(strays.values()))} that belong to no prepared model or optimizer: their gradients "
        "differ from process to process; pass their model to prepare(), or requires_grad_(False) where nothing changes them",
        stacklevel=4,
    )


def _living_optimizers() -> list[Optimizer]:
    # By type(): an object may lie about its class, or fail when it is asked.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]


def _described(weights: list[Parameter]) -> str:
    shapes = ", ".join(str(tuple(weight.shape)) for weight in weights[:SHOWN])
    more = ", ..." if len(weights) > SHOWN else ""
    return f"{len(weights)} {'weight' if len(weights) == 1 else 'weights'} of shape {shapes}{more}"
