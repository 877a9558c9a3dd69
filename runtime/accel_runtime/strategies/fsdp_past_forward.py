"""Gradients of weights that a forward pass left gathered, and that a loss then took by another way than a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import Module

from accel_runtime.shards import shard_like


def exchange_past_forward(models: Iterable[Module]) -> None:
    """After a backward pass: the exchange is a hook of forward passes, and these gradients had none."""
    for model in models:
        for unit in model.modules():
            if isinstance(unit, FSDPModule) and any(not isinstance(weight, DTensor) for _, _, weight in _first(unit)):
                _exchange(unit)


def _exchange(unit: FSDPModule) -> None:
    found = {id(weight.grad): (owner, name, weight.grad) for owner, name, weight in own_weights(unit)}  # type: ignore[arg-type]
    found.pop(id(None), None)
    for _, _, gathered in own_weights(unit) if found else ():  # type: ignore[arg-type]
        gathered.grad = None  # it comes back in the next step, and would add this to that one's
    if found:
        unit.reshard()
    for owner, name, gradient in found.values():
        weight = owner._parameters[name]
        assert weight is not None and gradient is not None
        gradient = gradient.to(weight.dtype)
        dist.all_reduce(gradient)
        shard = shard_like(gradient / dist.get_world_size(), weight)
        weight.grad = shard if weight.grad is None else weight.grad + shard


def _first(unit: FSDPModule) -> list[tuple[Module, str, Tensor]]:
    """One weight: all of a unit are gathered, or none."""
    return [one for one, _ in zip(own_weights(unit), range(1))]  # type: ignore[arg-type]


def own_weights(module: Module) -> Iterator[tuple[Module, str, Tensor]]:
    """Those that are gathered with a module, with where they are."""
    for name, weight in module._parameters.items():
        if weight is not None:
            yield module, name, weight
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from own_weights(child)
