"""Which device gets which layer: in the model's order, the first device first, each as full as its budget allows."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from accel_runtime.errors import ConfigError
from accel_runtime.large.sizes import (
    Budgets,
    Named,
    as_classes,
    can_be_split,
    compute_module_sizes,
    compute_module_total_buffer_size,
    direct_parts,
    get_max_layer_size,
    get_max_memory,
)
from accel_runtime.large.tensors import Place, find_tied_parameters

logger = logging.getLogger(__name__)

DeviceMap = dict[str, Place]


def infer_auto_device_map(
    model: nn.Module,
    max_memory: Budgets | None = None,
    no_split_module_classes: str | Sequence[str] | None = None,
    dtype: str | torch.dtype | None = None,
    special_dtypes: Mapping[str, str | torch.dtype] | None = None,
    verbose: bool = False,
    clean_result: bool = True,
    offload_buffers: bool = False,
    fallback_allocation: bool = False,
) -> DeviceMap:
    """A device for every layer: GPUs, then the CPU, then the disk.

    The first GPU and the CPU keep room for the largest layer that comes to them when it runs. Modules that share
    parameters get the same device.
    """
    allocation = Allocation(
        budgets=get_max_memory(max_memory),
        sizes=compute_module_sizes(model, dtype, special_dtypes),
        no_split=as_classes(no_split_module_classes),
        tied=find_tied_parameters(model),
        queue=direct_parts(model),
        verbose=verbose,
    )
    while allocation.queue:
        allocation.place_next(fallback_allocation)
    if not offload_buffers:
        _warn_about_buffers(model, allocation, dtype, special_dtypes)
    return clean_device_map(allocation.placed) if clean_result else allocation.placed


@dataclass
class Allocation:
    """The layers that wait, the device that is being filled, and what is where already."""

    budgets: Budgets
    sizes: Mapping[str, int]
    no_split: list[str]
    tied: list[list[str]]
    queue: list[Named]
    verbose: bool = False
    placed: DeviceMap = field(default_factory=dict)
    used: dict[int | str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices: list[int | str] = [*self.budgets, *(["disk"] if "disk" not in self.budgets else [])]
        gpus = [device for device in self.devices if device not in ("cpu", "disk")]
        # Where layers that are kept elsewhere come to run, or pass through.
        self.visited = ["mps"] if "mps" in gpus else [*gpus[:1], "cpu"]
        self.largest = self._largest(self.queue)

    def place_next(self, fallback: bool) -> None:
        """Puts the first in the queue on the device, splits it, or goes on to the next device."""
        (name, part), *rest = self.queue
        if not self.largest[1] or all(_within(other, name) for other in self.largest[1]):
            self.largest = self._largest([item for item in rest if isinstance(item[1], nn.Module)])
        device = self.devices[0]
        group = self._tied_parts(name, rest)
        room = None if device == "disk" else self._room(device)
        if room is None or self._together(name, group) <= room:
            self._put(name, group, device)
        elif group and self.sizes[name] <= room and self._split_one_of(group):
            pass
        elif self.sizes[name] >= room and can_be_split(part, self.no_split):
            self._replace(name, part)
        elif not (fallback and not self.used.get(device) and self._bring_forward(name, group)):
            self._say(f"{name} ({self.sizes[name]} bytes) does not fit on {device} ({room} bytes are left)")
            self.devices.pop(0)

    def _room(self, device: int | str) -> int:
        kept = self.largest[0] if device in self.visited else 0
        return int(self.budgets[device] - kept - self.used.get(device, 0))

    def _put(self, name: str, group: list[Named], device: int | str) -> None:
        names = [name, *(other for other, _ in group)]
        self._say(f"{', '.join(names)} on {device}")
        self.used[device] = self.used.get(device, 0) + self._together(name, group)
        self.placed |= dict.fromkeys(names, device)
        self.queue = [item for item in self.queue if item[0] not in names]

    def _tied_parts(self, name: str, rest: list[Named]) -> list[Named]:
        """The parts in the queue that hold a parameter of this one under another name."""
        shared = [other for group in self.tied for other in group if any(_within(one, name) for one in group)]
        outside = [other for other in shared if not _within(other, name)]
        return [item for item in rest if any(_within(other, item[0]) for other in outside)]

    def _together(self, name: str, group: list[Named]) -> int:
        names = [name, *(other for other, _ in group)]
        # A tied parameter is counted under its first name only, so the sum has it once.
        return sum(self.sizes.get(each, 0) for each in names)

    def _split_one_of(self, group: list[Named]) -> bool:
        splittable = [item for item in group if can_be_split(item[1], self.no_split)]
        for name, part in splittable[:1]:
            self._replace(name, part)
        return bool(splittable)

    def _replace(self, name: str, part: nn.Module) -> None:
        self._say(f"{name} is split")
        place = [other for other, _ in self.queue].index(name)
        self.queue[place : place + 1] = direct_parts(part, f"{name}.")
        self.largest = self._largest([item for item in self.queue if isinstance(item[1], nn.Module)])

    def _bring_forward(self, name: str, group: list[Named]) -> bool:
        """Moves the first part that fits on the empty device to the front; whether there is one."""
        device = self.devices[0]
        if device == "disk":
            return False
        room = self.budgets[device] - max(self.largest[0], self._together(name, group))
        for other, part in _parts_in_order(self.queue[1:], self.no_split):
            rest = [item for item in self.queue if item[0] != other and not _within(item[0], other)]
            if self._together(other, self._tied_parts(other, rest)) <= room:
                self._take_out(other)
                self.queue.insert(0, (other, part))
                return True
        return False

    def _take_out(self, name: str) -> None:
        while name not in (waiting := dict(self.queue)):
            self._replace(parent := next(other for other in waiting if _within(name, other)), waiting[parent])
        self.queue = [item for item in self.queue if item[0] != name]

    def _largest(self, parts: list[Named]) -> tuple[int, list[str]]:
        return get_max_layer_size(parts, self.sizes, self.no_split)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text)


def _parts_in_order(parts: list[Named], no_split: list[str]) -> list[Named]:
    """Every part with all that it splits into after it."""
    found: list[Named] = []
    for name, part in parts:
        found.append((name, part))
        if can_be_split(part, no_split):
            found += _parts_in_order(direct_parts(part, f"{name}."), no_split)
    return found


def _within(name: str, module: str) -> bool:
    return not module or f"{name}.".startswith(f"{module}.")


def _warn_about_buffers(model: nn.Module, allocation: Allocation, dtype: Any, special_dtypes: Any) -> None:
    """Buffers of layers on the CPU and the disk stay on the device where the layers run: is there room for them?"""
    gpus = [device for device in allocation.budgets if device not in ("cpu", "disk")]
    away = [name for name, device in allocation.placed.items() if gpus and device in ("cpu", "disk")]
    modules = dict(model.named_modules())
    buffers = sum(compute_module_total_buffer_size(modules[n], dtype, special_dtypes) for n in away if n in modules)
    free = allocation.budgets[gpus[0]] - allocation.used.get(gpus[0], 0) if gpus else 0
    if buffers > free:
        logger.warning(
            "buffers of layers that are kept elsewhere take %s bytes on device %s, which has %s left; pass offload_buffers=True",
            buffers,
            gpus[0],
            int(free),
        )


def clean_device_map(device_map: DeviceMap, module_name: str = "") -> DeviceMap:
    """The same map with one entry for each module whose parts are all on one device; it is changed in place."""
    below = [name for name in device_map if module_name == "" or name.startswith(f"{module_name}.")]
    places = {device_map[name] for name in below}
    if len(places) == 1 and len(below) > 1:
        for name in below:
            del device_map[name]
        device_map[module_name] = places.pop()
        return device_map
    depth = module_name.count(".") + 2 if module_name else 1
    for child in dict.fromkeys(".".join(name.split(".")[:depth]) for name in below if name != module_name):
        clean_device_map(device_map, child)
    return device_map


def place_of(name: str, device_map: Mapping[str, Place]) -> Place | None:
    """The device of a tensor or module: that of the nearest module around it that the map names."""
    while name and name not in device_map:
        name = name.rpartition(".")[0]
    return device_map.get(name)


def unnested(model: nn.Module, device_map: Mapping[str, Place]) -> DeviceMap:
    """The same map without entries inside of others: a module that has one gives its place to its other parts."""
    found: DeviceMap = {}
    for name, place in device_map.items():
        if not any(other != name and _within(other, name) for other in device_map):
            found[name] = place
            continue
        parts = dict(direct_parts(model.get_submodule(name), f"{name}." if name else ""))
        rest = {part: place for part in parts if part not in device_map}
        inner = {other: p for other, p in device_map.items() if other != name and _within(other, name)}
        found |= unnested(model, {**rest, **inner})
    return found


def check_device_map(model: nn.Module, device_map: Mapping[str, Place]) -> None:
    """Refuses a map that leaves a tensor out; names that the model has not are warned about."""
    known = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
    unknown = [name for name in device_map if name not in known | {name for name, _ in model.named_buffers()}]
    if unknown:
        warnings.warn(f"the device_map names what the model has not: {', '.join(unknown)}", UserWarning, stacklevel=3)
    homeless = [name for name in model.state_dict() if place_of(name, device_map) is None]
    if homeless:
        raise ConfigError(f"the device_map gives no device for {', '.join(homeless)}")


def check_tied_parameters_on_same_device(tied_params: list[list[str]], device_map: Mapping[str, Place]) -> None:
    """Warns about tied parameters that the map parts."""
    for group in tied_params:
        places = {name: place_of(name, device_map) for name in group}
        if len(set(places.values())) > 1:
            logger.warning("tied parameters are on different devices, and so are copies of each other: %s", places)


def check_tied_parameters_in_config(model: nn.Module) -> bool:
    """Whether a model of transformers says that its embeddings are tied."""
    config = getattr(model, "config", None)
    asked = [part for part in (config, *(getattr(config, "sub_configs", None) or ())) if not isinstance(part, str)]
    return any(getattr(part, "tie_word_embeddings", False) for part in asked) and any(
        getattr(model, method, lambda: None)() is not None for method in ("get_output_embeddings",)
    )


def get_module_leaves(module_sizes: Mapping[str, int]) -> list[str]:
    """Names that no other name begins with."""
    parents = {name.rpartition(".")[0] for name in module_sizes}
    return [name for name in module_sizes if name not in parents]
