"""Precision by autocast: the weights stay as they are, the forward pass runs narrow and gives full precision back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module

from accel_runtime.handlers import AutocastKwargs, Handler, pick
from accel_runtime.precision import Precision
from accel_runtime.tree import Leaf, Tree, map_leaves

Region = functools.partial[torch.autocast]
NARROW = (torch.bfloat16, torch.float16)


class Autocast(Precision):
    """What bf16 and fp16 share."""

    dtype: torch.dtype

    def __init__(self, device_type: str, autocast: AutocastKwargs) -> None:
        # A partial and not a method: it is entered at every forward pass.
        self.region: Region = functools.partial(torch.autocast, device_type, self.dtype, **vars(autocast))

    @classmethod
    def made_for(cls, device_type: str, handlers: tuple[Handler, ...]) -> Self:
        return cls(device_type, pick(handlers, AutocastKwargs, AutocastKwargs()))

    def autocast(self, settings: AutocastKwargs | None = None) -> torch.autocast:
        return self.region() if settings is None else self.region(**vars(settings))

    def wrap_forward(self, model: Module) -> None:
        wrap_forward(model, self.region)


def wrap_forward(model: Module, region: Region) -> None:
    """Changes the model's class, not its instance: a deep copy then runs its own forward, and isinstance holds."""
    if "forward" in vars(model):
        # Somebody patched this very instance; the class would never be asked.
        model.forward = _autocast_call(model.forward, region)
    else:
        model.__class__ = _class_for(type(model), region)


def unwrap_forward(model: Module) -> None:
    """Gives the model its own class back."""
    if isinstance(model, AutocastForward):
        model.__class__ = type(model).__mro__[2]


class AutocastForward(Module):
    """Mixed into the class of a model."""

    _region: Region

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self._region():
            outputs = super().forward(*args, **kwargs)
        if outputs.__class__ is Tensor:  # the common case, without a call
            return outputs.float() if outputs.dtype in NARROW else outputs
        return full_precision(outputs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # The class exists in this process only; copies and pickles make it anew.
        return _new, (type(self).__mro__[2], self._region), self.__getstate__()  # type: ignore[no-untyped-call]


def full_precision(outputs: Tree) -> Tree:
    """Half-precision tensors as float32; losses and metrics are then computed as people expect."""
    return map_leaves(_widened, outputs)


def _widened(leaf: Leaf) -> Leaf:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in NARROW else leaf


def _class_for(kind: Any, region: Region) -> type[Module]:
    # By value: the region of a copy or a pickle is another object.
    return _autocast_class(kind, region.args, tuple(region.keywords.items()))


@functools.cache
def _autocast_class(kind: Any, arguments: tuple[Any, ...], settings: tuple[tuple[str, Any], ...]) -> type[Module]:
    region = staticmethod(functools.partial(torch.autocast, *arguments, **dict(settings)))
    return type(kind.__name__, (AutocastForward, kind), {"__module__": kind.__module__, "_region": region})


def _new(kind: type[Module], region: Region) -> Module:
    return object.__new__(_class_for(kind, region))


def _autocast_call(forward: Callable[..., Any], region: Region) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        with region():
            outputs = forward(*args, **kwargs)
        return full_precision(outputs)

    return call
