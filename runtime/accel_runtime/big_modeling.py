"""Models that are larger than one device, or than memory: made without weights, loaded and run piece by piece."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.large.aligning import AlignDevicesHook, attach_align_device_hook, attach_align_device_hook_on_blocks
from accel_runtime.large.device_map import check_device_map, infer_auto_device_map, unnested
from accel_runtime.large.hooks import (
    GUARDED,
    CpuOffload,
    LayerwiseCastingHook,
    UserCpuOffloadHook,
    add_hook_to_module,
)
from accel_runtime.large.loading import load_checkpoint_in_model
from accel_runtime.large.offload import (
    INDEX,
    Folder,
    OffloadedWeightsLoader,
    extract_submodules_state_dict,
    offload_state_dict,
)
from accel_runtime.large.sizes import Budgets, get_balanced_memory
from accel_runtime.large.tensors import (
    META,
    Place,
    Ties,
    as_device,
    find_tied_parameters,
    retie_parameters,
    set_module_tensor_to_device,
)

logger = logging.getLogger(__name__)

__all__ = [
    "attach_layerwise_casting_hooks",
    "cpu_offload",
    "cpu_offload_with_hook",
    "disk_offload",
    "dispatch_model",
    "init_empty_weights",
    "init_on_device",
    "load_checkpoint_and_dispatch",
    "load_checkpoint_in_model",
]


@contextmanager
def init_empty_weights(include_buffers: bool | None = None) -> Iterator[None]:
    """Models that are made inside have shapes and no values, and take no memory.

    >>> with init_empty_weights():
    ...     model = torch.nn.Linear(100_000, 100_000)
    """
    with init_on_device(META, include_buffers):
        yield


@contextmanager
def init_on_device(device: torch.device, include_buffers: bool | None = None) -> Iterator[None]:
    """The parameters of models that are made inside are on the device, with `include_buffers` also their buffers."""
    if include_buffers is None:
        include_buffers = _flag(os.environ, "ACCELERATE_INIT_INCLUDE_BUFFERS")
    if include_buffers:
        with torch.device(device):
            yield
        return
    register = nn.Module.register_parameter

    def register_there(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        register(module, name, param)
        # One that is there already stays the same object, so that tied weights stay tied.
        if param is not None and param.device != torch.device(device):
            set_module_tensor_to_device(module, name, device)

    nn.Module.register_parameter = register_there  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _flag(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "0").lower() in ("1", "true", "yes", "on", "y", "t")


def cpu_offload(
    model: nn.Module,
    execution_device: Place | None = None,
    offload_buffers: bool = False,
    state_dict: Mapping[str, Tensor] | None = None,
    preload_module_classes: list[str] | None = None,
) -> nn.Module:
    """Each layer comes to the device when it runs; all weights stay on the CPU."""
    device = next(model.parameters()).device if execution_device is None else execution_device
    weights = {n: v.detach().to("cpu") for n, v in model.state_dict().items()} if state_dict is None else state_dict
    return _offloaded(model, device, weights, offload_buffers, preload_module_classes)


def disk_offload(
    model: nn.Module,
    offload_dir: Folder,
    execution_device: Place | None = None,
    offload_buffers: bool = False,
    preload_module_classes: list[str] | None = None,
) -> nn.Module:
    """Each layer comes to the device when it runs; all weights stay in the folder, which is used again if it has them."""
    if not (Path(offload_dir) / INDEX).is_file():
        offload_state_dict(offload_dir, model.state_dict())
    device = next(model.parameters()).device if execution_device is None else execution_device
    weights = OffloadedWeightsLoader(save_folder=offload_dir)
    return _offloaded(model, device, weights, offload_buffers, preload_module_classes)


def _offloaded(
    model: nn.Module, device: Place, weights: Mapping[str, Tensor], offload_buffers: bool, preload: list[str] | None
) -> nn.Module:
    add_hook_to_module(model, AlignDevicesHook(io_same_device=True), append=True)
    attach_align_device_hook(model, device, True, weights, offload_buffers, preload_module_classes=preload)
    return model


def cpu_offload_with_hook(
    model: nn.Module, execution_device: Place | None = None, prev_module_hook: UserCpuOffloadHook | None = None
) -> tuple[nn.Module, UserCpuOffloadHook]:
    """The whole model comes to the device when it runs, and stays until the next one in the chain runs."""
    hook = CpuOffload(execution_device, prev_module_hook)
    add_hook_to_module(model, hook, append=True)
    return model, UserCpuOffloadHook(model, hook)


def dispatch_model(
    model: nn.Module,
    device_map: Mapping[str, Place],
    main_device: Place | None = None,
    state_dict: Mapping[str, Tensor] | None = None,
    offload_dir: Folder | None = None,
    offload_index: Mapping[str, Any] | None = None,
    offload_buffers: bool = False,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    force_hooks: bool = False,
) -> nn.Module:
    """Spreads a model over the devices of the map; layers on "cpu" and "disk" come to the main device when they run."""
    check_device_map(model, device_map)
    # Any: the attribute is Accelerate's, and transformers reads it.
    target: Any = model
    target.hf_device_map = dict(device_map)
    device_map = unnested(model, device_map)
    places = dict.fromkeys(device_map.values())
    if len(places) == 1 and "disk" not in places and not force_hooks:
        return model.to(as_device(next(iter(places))))
    main = (
        next((place for place in places if place not in ("cpu", "disk")), "cpu") if main_device is None else main_device
    )
    away = ("disk",) if main in ("cpu", "mps") else ("cpu", "disk")
    tied = find_tied_parameters(model)
    attach_align_device_hook_on_blocks(
        model,
        execution_device={"": main, **{n: main if p in ("cpu", "disk") else p for n, p in device_map.items()}},
        offload={name: place in away for name, place in device_map.items()},
        weights_map=_weights_away(model, device_map, away, state_dict, offload_dir, offload_index, main),
        offload_buffers=offload_buffers,
        skip_keys=skip_keys,
        preload_module_classes=preload_module_classes,
        tied_params_map=Ties(model),
    )
    retie_parameters(model, tied)
    _guard_moves(model)
    return model


def _weights_away(
    model: nn.Module,
    device_map: Mapping[str, Place],
    away: tuple[str, ...],
    state_dict: Mapping[str, Tensor] | None,
    folder: Folder | None,
    index: Mapping[str, Any] | None,
    main: Place,
) -> OffloadedWeightsLoader | None:
    """The weights of layers on the CPU and the disk; those on the disk are written if the folder has none yet."""
    on_cpu = [name for name, place in device_map.items() if place == "cpu"]
    on_disk = [name for name, place in device_map.items() if place == "disk"]
    if state_dict is None and on_cpu and "cpu" in away:
        state_dict = extract_submodules_state_dict(model.state_dict(), on_cpu)
    if on_disk and folder is None and index is None:
        raise ConfigError(f"the device_map sends {', '.join(on_disk)} to the disk; pass a folder as offload_dir")
    if on_disk and index is None and not (Path(str(folder)) / INDEX).is_file():
        offload_state_dict(str(folder), extract_submodules_state_dict(model.state_dict(), on_disk))
    save_folder = folder if on_disk else None
    if state_dict is None and save_folder is None and index is None:
        return None
    return OffloadedWeightsLoader(state_dict, save_folder, index, main if index is not None else None)


def _guard_moves(model: nn.Module) -> None:
    """Moving a model that is spread out would undo it: refused if weights are elsewhere, else said."""
    for name in GUARDED:
        if (method := getattr(model, name, None)) is not None:
            object.__setattr__(model, name, functools.partial(_guarded_move, model, method))


def _guarded_move(model: nn.Module, method: Any, *args: Any, **kwargs: Any) -> Any:
    if method.__name__ == "to" and torch._C._nn._parse_to(*args, **kwargs)[0] is None:
        return method(*args, **kwargs)
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UsageError("this model has layers on the CPU or the disk by its device_map, so it cannot be moved")
    logger.warning("this model is spread over devices by its device_map; moving it breaks that")
    return method(*args, **kwargs)


def load_checkpoint_and_dispatch(
    model: nn.Module,
    checkpoint: Folder,
    device_map: str | Mapping[str, Place] | None = None,
    max_memory: Budgets | None = None,
    no_split_module_classes: Sequence[str] | None = None,
    offload_folder: Folder | None = None,
    offload_buffers: bool = False,
    dtype: str | torch.dtype | None = None,
    offload_state_dict: bool | None = None,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    force_hooks: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> nn.Module:
    """Loads a checkpoint into a model, which may be empty, and spreads it by the map, "auto" or another policy."""
    if isinstance(device_map, str):
        device_map = _map_by_policy(model, device_map, max_memory, no_split_module_classes, dtype, offload_buffers)
    load_checkpoint_in_model(
        model,
        checkpoint,
        device_map,
        offload_folder,
        dtype,
        bool(offload_state_dict),
        offload_buffers,
        strict=strict,
        full_state_dict=full_state_dict,
        broadcast_from_rank0=broadcast_from_rank0,
    )
    if device_map is None:
        return model
    return dispatch_model(
        model,
        device_map,
        offload_dir=offload_folder,
        offload_buffers=offload_buffers,
        skip_keys=skip_keys,
        preload_module_classes=preload_module_classes,
        force_hooks=force_hooks,
    )


def _map_by_policy(
    model: nn.Module, policy: str, max_memory: Budgets | None, no_split: Any, dtype: Any, offload_buffers: bool
) -> Mapping[str, Place]:
    if policy not in ("auto", "balanced", "balanced_low_0", "sequential"):
        raise ConfigError(f"device_map={policy!r} is not a policy; they are auto, balanced, balanced_low_0, sequential")
    if policy != "sequential":
        max_memory = get_balanced_memory(model, max_memory, no_split, dtype, low_zero=policy == "balanced_low_0")
    return infer_auto_device_map(model, max_memory, no_split, dtype, offload_buffers=offload_buffers)


def attach_layerwise_casting_hooks(
    module: nn.Module,
    storage_dtype: torch.dtype,
    compute_dtype: torch.dtype,
    skip_modules_pattern: str | tuple[str, ...] | None = None,
    skip_modules_classes: tuple[type[nn.Module], ...] | None = None,
    non_blocking: bool = False,
) -> None:
    """Linear and convolution layers keep their weights in one type and compute in another, except those to skip."""
    patterns = (skip_modules_pattern,) if isinstance(skip_modules_pattern, str) else skip_modules_pattern or ()
    skipped: tuple[str, ...] = ()
    for name, part in module.named_modules():
        if isinstance(part, skip_modules_classes or ()) or any(re.search(pattern, name) for pattern in patterns):
            skipped += (name,)
        if any(f"{name}.".startswith(f"{outer}.") or not outer for outer in skipped):
            continue
        if isinstance(part, _CAST):
            add_hook_to_module(part, LayerwiseCastingHook(storage_dtype, compute_dtype, non_blocking), append=True)


_CAST = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
)
