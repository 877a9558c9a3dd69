"""What scripts for Accelerate import about collectives and nested batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from accel_runtime.errors import UsageError
from accel_runtime.operations import (
    broadcast,
    broadcast_object_list,
    concatenate,
    convert_to_fp32,
    find_batch_size,
    gather,
    gather_object,
    is_torch_tensor,
    listify,
    recursively_apply,
    reduce,
    send_to_device,
    slice_tensors,
)
from accel_runtime.operations import pad_across_processes as _pad_across_processes
from accel_runtime.state import PartialState
from accel_runtime.tree import Tree, leaves
from accel_runtime.unsupported import absent
from accel_runtime.utils.dataclasses import TensorInformation

# What unequal shapes raise here; Accelerate has a class of its own for them.
DistributedOperationException = UsageError


class CannotPadNestedTensorWarning(UserWarning):
    """Nested tensors have no one shape to pad."""


def pad_across_processes(tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
    """The tensors made as long in `dim` as the longest of all processes; nested and lower-dimensional ones stay."""
    if isinstance(tensor, Tensor):
        if tensor.is_nested:
            warnings.warn("nested tensors are not padded", CannotPadNestedTensorWarning, stacklevel=2)
            return tensor
        if not -tensor.dim() <= dim < tensor.dim():
            return tensor
    return _pad_across_processes(tensor, dim, pad_index, pad_first)


def is_namedtuple(data: Any) -> bool:
    return isinstance(data, tuple) and hasattr(data, "_fields") and hasattr(data, "_asdict")


def is_tensor_information(tensor_info: Any) -> bool:
    return isinstance(tensor_info, TensorInformation)


def honor_type(obj: Any, generator: Iterator[Any]) -> Any:
    """The items in a container like `obj`."""
    return type(obj)(*generator) if is_namedtuple(obj) else type(obj)(generator)


def get_data_structure(data: Tree) -> Tree:
    """The same containers with the shape and type of every tensor."""
    return recursively_apply(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def get_shape(data: Tree) -> Tree:
    return recursively_apply(lambda tensor: list(tensor.shape), data)


def initialize_tensors(data_structure: Tree) -> Tree:
    """Tensors for what `get_data_structure` found, with no particular numbers."""
    return recursively_apply(
        lambda one: torch.empty(*one.shape, dtype=one.dtype), data_structure, test_type=is_tensor_information
    )


def ignorant_find_batch_size(data: Tree) -> int | None:
    """As `find_batch_size`, for anything."""
    return find_batch_size(data)


def find_device(data: Tree) -> torch.device | None:
    """Where the first tensor is."""
    return next((leaf.device for _, leaf in leaves(data) if isinstance(leaf, Tensor)), None)


def copy_tensor_to_devices(tensor: Tensor | None = None) -> Tensor:
    """The tensor of the one process that has it, on all of them."""
    found = [one for one in gather_object([tensor]) if one is not None]
    if len(found) != 1:
        raise UsageError(f"copy_tensor_to_devices wants one process to have a tensor, and {len(found)} have one")
    return found[0].to(PartialState().device)  # type: ignore[no-any-return]


def pad_input_tensors(tensor: Tree, batch_size: int, num_processes: int, dim: int = 0) -> Tree:
    """The tensors with their first dimension filled up, by repeating rows, until the processes can share it equally."""
    if dim != 0:
        raise UsageError(f"pad_input_tensors fills up rows, which are dimension 0, and got dim={dim}")
    wanted = -(-batch_size // num_processes) * num_processes

    def filled(one: Tensor) -> Tensor:
        if not one.dim() or len(one) != batch_size:
            return one
        return one[[*range(batch_size), *[batch_size - 1] * (wanted - batch_size)]]

    return recursively_apply(filled, tensor)


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward whose half-precision outputs come as float32."""

    @wraps(model_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return convert_to_fp32(model_forward(*args, **kwargs))

    return forward


__all__ = [
    "CannotPadNestedTensorWarning",
    "DistributedOperationException",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "convert_outputs_to_fp32",
    "convert_to_fp32",
    "copy_tensor_to_devices",
    "find_batch_size",
    "find_device",
    "gather",
    "gather_object",
    "get_data_structure",
    "get_shape",
    "honor_type",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "is_namedtuple",
    "is_tensor_information",
    "is_torch_tensor",
    "listify",
    "pad_across_processes",
    "pad_input_tensors",
    "recursively_apply",
    "reduce",
    "send_to_device",
    "slice_tensors",
]

__getattr__ = absent(__name__)
