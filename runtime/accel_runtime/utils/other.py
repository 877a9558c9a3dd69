"""Small functions that scripts for Accelerate import."""

from __future__ import annotations

import logging
import os
import platform
import re
import socket
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from accel_runtime.config_file import user_file, write_config
from accel_runtime.machine import this_machine
from accel_runtime.operations import extract_model_from_parallel, wait_for_everyone
from accel_runtime.saving import save_atomically, save_tensors
from accel_runtime.unsupported import absent
from accel_runtime.utils.imports import _installed
from accel_runtime.world import world_from

log = logging.getLogger(__name__)


def is_peft_model(model: Module) -> bool:
    """Whether the model, without what prepare() put around it, is one of the package peft."""
    if not _installed("peft"):
        return False
    peft: Any = import_module("peft")
    return isinstance(extract_model_from_parallel(model), peft.PeftModel)


def is_compiled_module(module: Module) -> bool:
    return isinstance(module, torch._dynamo.eval_frame.OptimizedModule)


def save(
    obj: Any, f: str | os.PathLike[str], save_on_each_node: bool = False, safe_serialization: bool = False
) -> None:
    """`torch.save` once for all processes, or once on each machine; the file is there whole or not at all."""
    world = world_from(os.environ)
    if world.is_local_main if save_on_each_node else world.is_main:
        if safe_serialization:
            save_tensors(clean_state_dict_for_safetensors(obj), Path(f))
        else:
            save_atomically(obj, Path(f))


def load(f: str | os.PathLike[str], map_location: Any = None, **kwargs: Any) -> Any:
    """`torch.load` that runs no code of the file unless `weights_only=False` asks for it."""
    return torch.load(f, map_location=map_location, **{"weights_only": True, **kwargs})


def write_basic_config(mixed_precision: str = "no", save_location: str | os.PathLike[str] | None = None) -> Path | bool:
    """Writes what suits this machine, by default for all projects of this user; an existing file stays as it is."""
    file = user_file(os.environ) if save_location is None else Path(save_location)
    if file.exists():
        print(f"{file} is there already and stays as it is; `accel config` changes it")
        return False
    devices = max(1, len(this_machine(os.environ).devices))
    write_config(file, {"num_processes": devices, "mixed_precision": mixed_precision.lower()})
    return file


def is_port_in_use(port: int | None = None) -> bool:
    """Whether somebody listens on the port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(("localhost", 29500 if port is None else port)) == 0


def get_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def merge_dicts(source: dict[Any, Any], destination: dict[Any, Any]) -> dict[Any, Any]:
    """The destination with all of the source put into it, level by level."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def convert_bytes(size: float) -> str:
    """As people write it: 1536 is 1.5 KB."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def check_os_kernel() -> None:
    """Warns of a Linux too old to run many processes without hanging."""
    system = platform.uname()
    if system.system != "Linux":
        return
    found = re.match(r"\d+(\.\d+)*", system.release)
    if found and tuple(map(int, found.group().split("."))) < (5, 5):
        log.warning(f"Linux {found.group()} is older than 5.5.0, and processes may hang on it; take a newer kernel")


def get_pretty_name(obj: Any) -> str:
    """The name of a function or class, or of an object's class."""
    named = obj if hasattr(obj, "__qualname__") or hasattr(obj, "__name__") else type(obj)
    return str(getattr(named, "__qualname__", None) or named.__name__)


def model_has_dtensor(model: Module) -> bool:
    """Whether any weight is sharded."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(weight, DTensor) for weight in model.parameters())


def get_module_children_bottom_up(model: Module, return_fqns: bool = False) -> list[Any]:
    """All modules, each after those inside it; with `return_fqns`, pairs of name and module."""
    found = list(_bottom_up("", model))
    return found if return_fqns else [module for _, module in found]


def _bottom_up(name: str, module: Module) -> Iterator[tuple[str, Module]]:
    for child_name, child in module.named_children():
        yield from _bottom_up(f"{name}.{child_name}" if name else child_name, child)
    yield name, module


def clean_state_dict_for_safetensors(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Without the second name of tensors that have two, which safetensors does not take; says which went."""
    first: dict[Any, str] = {}
    second = []
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor) and value.numel():
            key = (value.device, value.untyped_storage().data_ptr(), value.storage_offset(), value.shape)
            if first.setdefault(key, name) != name:
                second.append(name)
    if second:
        log.warning(f"Removed shared tensor {second}: each is another name of one that is kept")
    return {name: value for name, value in state_dict.items() if name not in second}


def recursive_getattr(obj: Any, attr: str) -> Any:
    return reduce(getattr, attr.split("."), obj)


__all__ = [
    "check_os_kernel",
    "clean_state_dict_for_safetensors",
    "convert_bytes",
    "extract_model_from_parallel",
    "get_free_port",
    "get_module_children_bottom_up",
    "get_pretty_name",
    "is_compiled_module",
    "is_peft_model",
    "is_port_in_use",
    "load",
    "merge_dicts",
    "model_has_dtensor",
    "recursive_getattr",
    "save",
    "wait_for_everyone",
    "write_basic_config",
]

__getattr__ = absent(__name__)
