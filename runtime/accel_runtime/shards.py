"""Tensors of which each process holds a part. Imported where there are some: this takes a second."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Module
from torch.optim import Optimizer

Value = TypeVar("Value")


def shard_like(value: Value, like: object) -> Value | Tensor:
    """A whole tensor as the part that this process holds of one like it; nothing is sent. Other values stay."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or isinstance(value, DTensor):
        return value
    if value.shape != like.shape:
        return value
    # A clone, for the part may be a view that keeps the whole alive.
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None).clone()


def local(tensor: Tensor) -> Tensor:
    """The part of the tensor that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def in_parts(value: object) -> bool:
    """Whether a tensor, a model or an optimizer is one of which this process holds a part."""
    held: Iterable[object] = value.parameters() if isinstance(value, Module) else [value]
    if isinstance(value, Optimizer):
        held = [weight for group in value.param_groups for weight in group["params"]]
    return any(isinstance(one, DTensor) for one in held)


def whole_state(model: Module) -> dict[str, Any]:
    """The state with every tensor whole, on every process: all of them must come here."""
    state = model.state_dict()
    # By names, on which the processes agree: a tensor with two of them is gathered once, and stays one.
    first: dict[int, str] = {}
    owners = {name: first.setdefault(id(one), name) for name, one in model.named_parameters(remove_duplicate=False)}
    gathered: dict[str, Any] = {}
    for name, value in state.items():
        owner = owners.get(name, name)
        if owner not in gathered:
            gathered[owner] = whole(value) if isinstance(value, DTensor) else value
    return {name: gathered[owners.get(name, name)] for name in state}


def whole(tensor: DTensor) -> Tensor:
    """The tensor on every process: all of them must come here."""
    # Shards that wait in the CPU's memory travel by the device. Any: torch's types forget there what kind it is.
    here: Any = tensor.to(tensor.device_mesh.device_type)
    return here.full_tensor().to(tensor.device)  # type: ignore[no-any-return]
