"""Weights that a loss trains and whose gradients nobody exchanges: they would part from process to process in silence."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Collection, Iterable
from typing import NoReturn

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from accel_runtime.errors import UsageError
from accel_runtime.strategies.ddp_graph import leaves

SHOWN = 3  # shapes in a message


def refuse_strays(loss: Tensor, exchanged: Collection[int], stepped: Collection[int]) -> None:
    """Refuses weights that an optimizer steps, and warns of those that none does: they may be changed by hand, or not at all.

    An input that requires a gradient, as adversarial examples do, is not a `Parameter`, and no prepared optimizer steps it.
    """
    trained = {id(leaf): leaf for leaf in leaves(loss) if leaf is not None and id(leaf) not in exchanged}
    strays = {key: leaf for key, leaf in trained.items() if isinstance(leaf, Parameter) or key in stepped}
    if not strays:
        return
    for optimizer in _living_optimizers():
        found = [weight for group in optimizer.param_groups for weight in group["params"] if id(weight) in strays]
        if found:
            raise UsageError(
                f"the loss trains {_described(found)} that {type(optimizer).__name__} steps and whose gradients nobody "
                "exchanges, so they would differ from process to process; pass their model to prepare(), or the optimizer "
                "when it has all its weights"
            )
    warnings.warn(
        f"the loss trains {_described(list(strays.values()))} that belong to no prepared model or optimizer: their gradients "
        "differ from process to process; pass their model to prepare(), or requires_grad_(False) where nothing changes them",
        stacklevel=4,
    )


class Forgotten:
    """Weights that were exchanged until the script let go of their model: one that is trained all the same is refused."""

    def __init__(self) -> None:
        self.exchanged: dict[int, weakref.ref[Tensor]] = {}
        self.watched: dict[int, RemovableHandle] = {}

    def follow(self, exchanged: Iterable[Tensor]) -> None:
        """Takes the weights whose gradients are exchanged from now on."""
        now = {id(weight): weakref.ref(weight) for weight in exchanged}
        for key in now.keys() & self.watched.keys():
            self.watched.pop(key).remove()
        for key in self.exchanged.keys() - now.keys():
            weight = self.exchanged[key]()
            if weight is not None and weight.requires_grad:
                self.watched[key] = weight.register_post_accumulate_grad_hook(_refuse_forgotten)  # type: ignore[no-untyped-call]
        self.exchanged = now


def _refuse_forgotten(weight: Tensor) -> NoReturn:
    raise UsageError(
        f"the loss trains a weight of shape {tuple(weight.shape)} whose model the script let go of before it called prepare() "
        "again, so nobody averages its gradients any more; keep what prepare() returned, on every process, or prepare it again"
    )


def _living_optimizers() -> list[Optimizer]:
    # By type(): an object may lie about its class, or fail when it is asked.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]


def _described(weights: list[Tensor]) -> str:
    shapes = ", ".join(str(tuple(weight.shape)) for weight in weights[:SHOWN])
    more = ", ..." if len(weights) > SHOWN else ""
    return f"{len(weights)} {'weight' if len(weights) == 1 else 'weights'} of shape {shapes}{more}"
