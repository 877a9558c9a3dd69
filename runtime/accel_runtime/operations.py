"""Free functions over nested containers, for code that has no Accelerator at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DataParallel, DistributedDataParallel

from accel_runtime.collectives import Collectives, Reduction
from accel_runtime.data.rows import concatenated_rows
from accel_runtime.errors import UsageError
from accel_runtime.precision.autocast import full_precision
from accel_runtime.resolve import current_world
from accel_runtime.tree import Tree, batch_rows, map_leaves, place
from accel_runtime.world import World


def gather(tensor: Tree) -> Tree:
    """The tensors of all processes, joined in their first dimension."""
    return current_collectives().gather(tensor)


def gather_object(object: list[Any]) -> list[Any]:
    """The items of all processes in one list."""
    if not isinstance(object, (list, tuple)):
        raise UsageError(
            f"gather_object joins lists and got a {type(object).__name__}; put it in a list: gather_object([value])"
        )
    return [item for part in current_collectives().gather_objects(object) for item in part]


def reduce(tensor: Tree, reduction: Reduction = "mean", scale: float = 1.0) -> Tree:
    """The tensors of all processes averaged (or summed, or their largest or smallest values)."""
    return current_collectives().reduce(tensor, reduction, scale)


def broadcast(tensor: Tree, from_process: int = 0) -> Tree:
    """The tensors as one process has them."""
    return current_collectives().broadcast(tensor, from_process)


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Fills the list with what one process has in it."""
    return current_collectives().broadcast_objects(object_list, from_process)


def pad_across_processes(tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
    """The tensors made as long in `dim` as the longest of all processes."""
    return current_collectives().pad(tensor, dim, pad_index, pad_first)


def wait_for_everyone() -> None:
    """Returns when every process has come here."""
    current_collectives().barrier()


def send_to_device(tensor: Tree, device: torch.device | str, non_blocking: bool = False) -> Tree:
    """The batch on the device."""
    return place(tensor, torch.device(device), non_blocking)


def concatenate(data: list[Tree], dim: int = 0) -> Tree:
    """Nested batches joined row by row."""
    if dim != 0:
        raise UsageError(f"concatenate joins rows, which are dimension 0, and got dim={dim}; use torch.cat")
    return concatenated_rows(list(data))


def recursively_apply(function: Callable[..., Any], data: Tree, *args: Any, **kwargs: Any) -> Tree:
    """The same containers with the function applied to every tensor."""
    return map_leaves(lambda leaf: function(leaf, *args, **kwargs) if isinstance(leaf, Tensor) else leaf, data)


def slice_tensors(data: Tree, tensor_slice: slice) -> Tree:
    """The same containers with every tensor sliced."""
    return recursively_apply(lambda tensor: tensor[tensor_slice], data)


def find_batch_size(data: Tree) -> int | None:
    """The rows of the first tensor; None when there is no tensor with rows."""
    return batch_rows(data)


def listify(data: Tree) -> Tree:
    """The same containers with every tensor as a list of numbers."""
    return recursively_apply(lambda tensor: tensor.tolist(), data)


def convert_to_fp32(tensor: Tree) -> Tree:
    """Half-precision tensors as float32."""
    return full_precision(tensor)


def extract_model_from_parallel(model: Module, keep_fp32_wrapper: bool = True) -> Module:
    """The model inside wrappers that train it in parallel or compiled."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def current_collectives() -> Collectives:
    """Of the process group that this process has joined; alone when it has joined none."""
    if not dist.is_initialized():
        return Collectives(World(), torch.device("cpu"))
    world = current_world(os.environ)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or dist.get_backend() == "gloo":
        return Collectives(world, torch.device("cpu"))
    return Collectives(world, torch.device(accelerator.type, torch.accelerator.current_device_index()))
