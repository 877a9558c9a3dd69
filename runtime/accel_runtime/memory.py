"""Memory given back, and batch sizes that fit into it."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from accel_runtime.errors import UsageError
from accel_runtime.found_accelerator import found_accelerator

Result = TypeVar("Result")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "not enough memory")


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Gives memory that torch holds for reuse back to the device."""
    if garbage_collection:
        gc.collect()
    device = found_accelerator()
    if device is not None:
        torch.get_device_module(device.type).empty_cache()


def release_memory(*objects: Any) -> list[None]:
    """As many None as there were objects, to be assigned to their names: then the memory can go.

    >>> model, optimizer = release_memory(model, optimizer)
    """
    clear_device_cache(garbage_collection=True)
    return [None] * len(objects)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that memory ran out, on whatever device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)


def find_executable_batch_size(
    function: Callable[..., Result] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[int], int] | None = None,
) -> Callable[..., Any]:
    """Runs the function with a batch size as its first argument, and with a smaller one when memory runs out.

    >>> @find_executable_batch_size(starting_batch_size=64)
    ... def train(batch_size): ...
    >>> train()
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    if not inspect.signature(function).parameters:
        raise UsageError(f"{function.__name__}() takes no argument; its first must be the batch size")
    smaller = reduce_batch_size_fn or (lambda size: int(size * 0.9) if size > 1 else 0)

    @functools.wraps(function)
    def fitted(*args: Any, **kwargs: Any) -> Result:
        size = starting_batch_size
        while size > 0:
            clear_device_cache(garbage_collection=True)
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            size = smaller(size)
        raise UsageError(f"{function.__name__} runs out of memory even with a batch of one sample")

    return fitted
