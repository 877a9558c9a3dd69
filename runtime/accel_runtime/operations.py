"""Free functions over nested containers, for code that has no Accelerator at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DataParallel, DistributedDataParallel

from accel_runtime.collectives import Collectives, Reduction
from accel_runtime.data.rows import concatenated_rows
from accel_runtime.errors import UsageError
from accel_runtime.found_accelerator import found_accelerator
from accel_runtime.precision.autocast import full_precision, unwrap_forward
from accel_runtime.resolve import current_world
from accel_runtime.tree import Tree, batch_rows, leaves, map_leaves, place, replace_leaves
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


def send_to_device(
    tensor: Tree, device: torch.device | str | int, non_blocking: bool = False, skip_keys: str | list[str] | None = None
) -> Tree:
    """The batch on the device; what a mapping has under `skip_keys` stays where it is."""
    if not skip_keys or not isinstance(tensor, Mapping):
        return place(tensor, torch.device(device), non_blocking)
    skipped = [skip_keys] if isinstance(skip_keys, str) else skip_keys
    moved = {
        key: value if key in skipped else send_to_device(value, device, non_blocking, skip_keys)
        for key, value in tensor.items()
    }
    return moved if type(tensor) is dict else type(tensor)(moved)  # type: ignore[call-arg]


def concatenate(data: list[Tree], dim: int = 0) -> Tree:
    """Nested batches joined row by row, or along another dimension."""
    if len(data) == 1:
        return data[0]
    for path, leaf in leaves(data[0]):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"concatenate joins tensors and got {type(leaf).__name__} at {path or 'the top'}")
    if dim == 0:
        return concatenated_rows(list(data))
    columns = zip(*([leaf for _, leaf in leaves(one)] for one in data))
    return replace_leaves(data[0], [torch.cat(column, dim) for column in columns])


def is_torch_tensor(tensor: Any) -> bool:
    return isinstance(tensor, Tensor)


def recursively_apply(
    func: Callable[..., Any],
    data: Tree,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Tree:
    """The same containers with the function applied to every tensor, or to whatever `test_type` picks."""

    def applied(leaf: Any) -> Any:
        if test_type(leaf):
            return func(leaf, *args, **kwargs)
        if error_on_other_type:
            raise TypeError(
                f"Unsupported types ({type(leaf)}) passed to `{func.__name__}`. Only nested list/tuple/dicts of objects "
                f"that are valid for `{test_type.__name__}` should be passed."
            )
        return leaf

    return map_leaves(applied, data)


def slice_tensors(
    data: Tree, tensor_slice: slice, process_index: int | None = None, num_processes: int | None = None
) -> Tree:
    """The same containers with every tensor sliced; who slices, and among how many, changes nothing."""
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


def extract_model_from_parallel(
    model: Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> Module:
    """The model inside wrappers that train it in parallel; compiled if it was, unless that is not to be kept.

    Without the `fp32_wrapper` its forward is its own again. No wrapper used here lies deeper, so `recursive` finds none.
    """
    compiled: Any = model if "_orig_mod" in model._modules else None
    inner: Any = model if compiled is None else compiled._orig_mod
    while isinstance(inner, (DataParallel, DistributedDataParallel)):
        inner = inner.module
    if not keep_fp32_wrapper:
        unwrap_forward(inner)
        if "_original_forward" in vars(inner):  # as scripts keep it that patch a forward by themselves
            inner.forward = inner.__dict__.pop("_original_forward")
    if compiled is None or not keep_torch_compile:
        return inner  # type: ignore[no-any-return]
    if compiled._orig_mod is inner:
        return model
    rewrapped: Any = torch.compile(inner)
    return rewrapped  # type: ignore[no-any-return]


def current_collectives() -> Collectives:
    """Of the process group that this process has joined; alone when it has joined none."""
    if not dist.is_initialized():
        return Collectives(World(), torch.device("cpu"))
    world = current_world(os.environ)
    accelerator = found_accelerator()
    if accelerator is None or dist.get_backend() == "gloo":
        return Collectives(world, torch.device("cpu"))
    return Collectives(world, torch.device(accelerator.type, torch.accelerator.current_device_index()))
