"""How much memory each module of a model takes, and each device has."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import nn

from accel_runtime.errors import ConfigError
from accel_runtime.found_accelerator import found_accelerator
from accel_runtime.large.tensors import as_dtype, named_module_tensors
from accel_runtime.weights import size_in_bytes

logger = logging.getLogger(__name__)

Budgets = dict[int | str, Any]
# What stands in a queue for a device: a module that can be split, or one tensor.
Named = tuple[str, Any]


class CustomDtype(StrEnum):
    """Types that torch has no name for, by which quantized models say how large they will be."""

    FP8 = "fp8"
    INT4 = "int4"
    INT2 = "int2"


_CUSTOM = {CustomDtype.FP8: 1.0, CustomDtype.INT4: 1 / 2, CustomDtype.INT2: 1 / 4}


def dtype_byte_size(dtype: torch.dtype | CustomDtype) -> float:
    """Bytes of one element."""
    return _CUSTOM[dtype] if isinstance(dtype, CustomDtype) else dtype.itemsize


def convert_file_size_to_int(size: int | str) -> int:
    """Bytes of "5GB", "1MiB" or a number."""
    return size_in_bytes(size, "size")


def compute_module_sizes(
    model: nn.Module,
    dtype: str | torch.dtype | None = None,
    special_dtypes: Mapping[str, str | torch.dtype] | None = None,
    buffers_only: bool = False,
) -> dict[str, int]:
    """Bytes of every module and tensor by name, the whole model's under ""; tied parameters count once."""
    sizes: dict[str, int] = defaultdict(int)
    tensors = model.named_buffers() if buffers_only else named_module_tensors(model, recurse=True)
    for name, tensor in tensors:
        size = int(tensor.numel() * _element_size(name, tensor, dtype, special_dtypes or {}))
        parts = name.split(".")
        for length in range(len(parts) + 1):
            sizes[".".join(parts[:length])] += size
    return sizes


def _element_size(name: str, tensor: torch.Tensor, dtype: Any, special: Mapping[str, Any]) -> float:
    own = dtype_byte_size(tensor.dtype)
    if name in special:
        return dtype_byte_size(_dtype(special[name]))
    # A type is only ever asked for to save memory, and integers stay as they are.
    return own if dtype is None or not tensor.is_floating_point() else min(dtype_byte_size(_dtype(dtype)), own)


def _dtype(dtype: Any) -> Any:
    return dtype if isinstance(dtype, CustomDtype) else as_dtype(dtype)


def compute_module_total_buffer_size(
    model: nn.Module,
    dtype: str | torch.dtype | None = None,
    special_dtypes: Mapping[str, str | torch.dtype] | None = None,
) -> int:
    """Bytes of all buffers."""
    return compute_module_sizes(model, dtype, special_dtypes, buffers_only=True).get("", 0)


def direct_parts(module: nn.Module, prefix: str = "") -> list[Named]:
    """What a module splits into: its own parameters, its children, its own buffers."""
    children = list(module.named_children())
    parts = [*module.named_parameters(recurse=False), *children, *module.named_buffers(recurse=False)]
    return [(f"{prefix}{name}", part) for name, part in parts]


def can_be_split(part: Any, no_split: Sequence[str]) -> bool:
    return isinstance(part, nn.Module) and any(part.children()) and type(part).__name__ not in no_split


def get_max_layer_size(
    modules: Sequence[Named], module_sizes: Mapping[str, int], no_split_module_classes: Sequence[str]
) -> tuple[int, list[str]]:
    """The size of the largest part that is never split, and the names of all that are so large."""
    largest, names, queue = 0, list[str](), list(modules)
    while queue:
        name, part = queue.pop(0)
        if can_be_split(part, no_split_module_classes):
            queue = [(f"{name}.{child}", module) for child, module in part.named_children()] + queue
        elif (size := module_sizes[name]) >= largest:
            names = [*names, name] if size == largest else [name]
            largest = size
    return largest, names


def calculate_maximum_sizes(model: nn.Module) -> tuple[int, tuple[int, list[str]]]:
    """The size of the model, and of its largest layer with its names."""
    sizes = compute_module_sizes(model)
    no_split = getattr(model, "_no_split_modules", None) or []
    return sizes[""], get_max_layer_size(direct_parts(model), sizes, no_split)


def get_max_memory(max_memory: Budgets | None = None) -> Budgets:
    """The budgets in bytes, GPUs first; without any, what is free on this machine."""
    if max_memory is None:
        return _free_memory()
    for key in max_memory:
        if not isinstance(key, int) and key not in ("mps", "cpu", "disk"):
            raise ConfigError(f"max_memory names {key!r}; devices are numbers (GPUs), 'mps', 'cpu' and 'disk'")
    there = torch.accelerator.device_count()
    for absent in [key for key in max_memory if isinstance(key, int) and not 0 <= key < there]:
        logger.warning("max_memory has a budget for device %s; this machine has %s", absent, there)
    order = [*sorted(key for key in max_memory if isinstance(key, int)), "mps", "cpu", "disk"]
    # In place too: transformers goes on with what it passed.
    max_memory.update({key: convert_file_size_to_int(size) for key, size in max_memory.items()})
    return {key: max_memory[key] for key in order if key in max_memory}


def _free_memory() -> Budgets:
    accelerator = found_accelerator()
    if accelerator is None:
        return {"cpu": _free_ram()}
    if accelerator.type == "mps":  # its memory is the machine's own
        return {"mps": _free_ram()}
    module = torch.get_device_module(accelerator.type)
    free: Budgets = {number: module.mem_get_info(number)[0] for number in range(torch.accelerator.device_count())}
    return {**free, "cpu": _free_ram()}


def _free_ram(path: Path = Path("/proc/meminfo")) -> int:
    if path.exists():
        fields = dict(line.split(":") for line in path.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def get_balanced_memory(
    model: nn.Module,
    max_memory: Budgets | None = None,
    no_split_module_classes: str | Sequence[str] | None = None,
    dtype: str | torch.dtype | None = None,
    special_dtypes: Mapping[str, str | torch.dtype] | None = None,
    low_zero: bool = False,
) -> Budgets:
    """Budgets by which every GPU gets about as much of the model; with `low_zero` the first as little as can be."""
    budgets = get_max_memory(max_memory)
    gpus = [key for key, size in budgets.items() if key not in ("cpu", "disk") and size > 0]
    if not gpus:
        return budgets
    if len(gpus) == 1 and max_memory is None and gpus != ["mps"]:
        budgets[gpus[0]] = int(budgets[gpus[0]] * 0.9)  # room for activations
    low_zero = low_zero and len(gpus) > 1
    sizes = compute_module_sizes(model, dtype, special_dtypes)
    share = sizes[""] // (len(gpus) - low_zero) + _slack(model, sizes, as_classes(no_split_module_classes))
    # The last has no bound of its own: it takes what the others leave.
    for number in gpus[:-1]:
        if not (low_zero and number == 0):
            budgets[number] = min(share, budgets[number])
    if low_zero:
        others = sum(budgets[number] for number in gpus if number != 0)
        budgets[0] = min(max(0, sizes[""] - others), budgets[0])
    return budgets


def _slack(model: nn.Module, sizes: Mapping[str, int], no_split: Sequence[str]) -> int:
    """What a device needs beyond its even share, since layers come whole: a block, or a layer of mean size."""
    named = dict(model.named_modules())
    blocks: dict[str, int] = {}
    for name, module in named.items():
        if type(module).__name__ in no_split:
            blocks.setdefault(type(module).__name__, sizes.get(name, 0))
    layers = [sizes[name] for name, module in named.items() if name in sizes and not any(module.children())]
    return int(1.25 * max([*blocks.values(), sum(layers) // max(len(layers), 1)]))


def as_classes(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])
