"""Tensors of which each process holds a part. Imported where there are some: this takes a second."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

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


def whole(tensor: DTensor) -> Tensor:
    """The whole tensor on every process, all of which must come here."""
    # Shards that wait in the CPU's memory travel by the device. Any: torch's types forget there what kind it is.
    here: Any = tensor.to(tensor.device_mesh.device_type)
    return here.full_tensor().to(tensor.device)  # type: ignore[no-any-return]
