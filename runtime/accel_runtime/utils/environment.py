"""Variables of the environment, as Accelerate's functions read and change them."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from accel_runtime.found_accelerator import found_accelerator
from accel_runtime.unsupported import absent
from accel_runtime.world import world_from

log = logging.getLogger("accelerate.utils.environment")  # by the name that scripts listen to
OF_ACCELERATE = ("ACCELERATE_", "FSDP_", "DEEPSPEED_", "MEGATRON_LM_", "PARALLELISM_CONFIG_")


@contextmanager
def patch_environment(**values: Any) -> Iterator[None]:
    """Has these variables, in capitals, for a while; what was there before comes back."""
    with _exchanged(os.environ, {name.upper(): str(value) for name, value in values.items()}):
        yield


@contextmanager
def clear_environment() -> Iterator[None]:
    """Has an empty environment for a while; what is set inside goes with it."""
    with _emptied(os.environ):
        yield


@contextmanager
def _emptied(environ: MutableMapping[str, str]) -> Iterator[None]:
    before = dict(environ)
    environ.clear()
    try:
        yield
    finally:
        environ.clear()
        environ.update(before)


def str_to_bool(value: str, to_bool: bool = False) -> int:
    """1 for y, yes, t, true, on, 1; 0 for their opposites."""
    word = value.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return True if to_bool else 1
    if word in ("n", "no", "f", "false", "off", "0"):
        return False if to_bool else 0
    raise ValueError(f"{value!r} is neither true nor false")


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    return bool(str_to_bool(_read(os.environ, key, str(default))))


def parse_choice_from_env(key: str, default: str = "no") -> str:
    return _read(os.environ, key, str(default))


def get_int_from_env(env_keys: Iterable[str], default: int) -> int:
    """The first of these variables that holds a number of at least 0."""
    values = (int(_read(os.environ, key, "-1")) for key in env_keys)
    return next((value for value in values if value >= 0), default)


def convert_dict_to_env_variables(current_env: Mapping[str, str]) -> list[str]:
    """Lines of a file of variables; what would break such a file is left out, with a warning."""
    bad = [key for key, value in current_env.items() if set(f"{key}{value}") & set(";\n<> ")]
    for key in bad:
        log.warning(f"{key}={current_env[key]} is left out: it holds a character that means something to a shell")
    return [f"{key}={value}\n" for key, value in current_env.items() if key not in bad]


def purge_accelerate_environment(func_or_cls: Any) -> Any:
    """A test, or each test of a class, after which Accelerate's variables are as they were before."""
    if not isinstance(func_or_cls, type):
        return _purged(func_or_cls)
    inherited = getattr(func_or_cls.__init_subclass__, "__func__", None)

    def for_subclass(cls: Any, /, **settings: Any) -> None:
        if inherited is not None:
            inherited(cls, **settings)
        _purge_tests(cls)

    _purge_tests(func_or_cls)
    func_or_cls.__init_subclass__ = classmethod(for_subclass)  # type: ignore[assignment]
    return func_or_cls


def _purge_tests(cls: type) -> None:
    for name, method in list(vars(cls).items()):
        if callable(method) and name.startswith("test"):
            setattr(cls, name, _purged(method))


def _purged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        environ: MutableMapping[str, str] = _whole(os.environ)
        before = {name: value for name, value in environ.items() if name.startswith(OF_ACCELERATE)}
        try:
            return function(*args, **kwargs)
        finally:
            for name in [name for name in environ if name.startswith(OF_ACCELERATE) and name not in before]:
                del environ[name]
            environ.update(before)

    return call


def _whole(environ: MutableMapping[str, str]) -> MutableMapping[str, str]:
    return environ


def are_libraries_initialized(*library_names: str) -> list[str]:
    """Which of these packages have been imported."""
    return [name for name in library_names if name in sys.modules]


def get_current_device_type() -> tuple[str, str]:
    """The kind of this machine's device, and Accelerate's word for several of them."""
    device = found_accelerator()
    kind = "cuda" if device is None else device.type
    return kind, "MULTI_GPU" if kind == "cuda" else f"MULTI_{kind.upper()}"


def get_gpu_info() -> tuple[list[str], int]:
    """Names and number of the NVIDIA GPUs, as their driver lists them."""
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    names = [name for name in listed if name]
    return names, len(names)


def check_cuda_fp8_capability() -> bool:
    """Whether the GPU computes in fp8."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)


@dataclass
class CPUInformation:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def get_cpu_distributed_information() -> CPUInformation:
    """The place of this process, from whatever launcher."""
    world = world_from(os.environ)
    return CPUInformation(world.rank, world.size, world.local_rank, world.local_size)


def _read(environ: Mapping[str, str], key: str, default: str) -> str:
    return environ.get(key, default)


@contextmanager
def _exchanged(environ: MutableMapping[str, str], added: Mapping[str, str]) -> Iterator[None]:
    before = {name: environ.get(name) for name in added}
    environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


__all__ = [
    "CPUInformation",
    "are_libraries_initialized",
    "check_cuda_fp8_capability",
    "clear_environment",
    "convert_dict_to_env_variables",
    "get_cpu_distributed_information",
    "get_current_device_type",
    "get_gpu_info",
    "get_int_from_env",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "purge_accelerate_environment",
    "str_to_bool",
]

__getattr__ = absent(__name__)
