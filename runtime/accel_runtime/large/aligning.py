"""Hooks that bring inputs and weights together: weights that are kept elsewhere come for one forward and go after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from accel_runtime.large.device_map import place_of
from accel_runtime.large.hooks import ModelHook, SequentialHook, add_hook_to_module, device_of, moved
from accel_runtime.large.offload import PrefixedDataset
from accel_runtime.large.tensors import (
    META,
    Place,
    Ties,
    as_device,
    get_non_persistent_buffers,
    named_module_tensors,
    owner_of,
    set_module_tensor_to_device,
)

Weights = Mapping[str, Tensor]


class AlignDevicesHook(ModelHook):
    """Inputs and weights of a module are on `execution_device` when it runs; with `offload` the weights only then."""

    def __init__(
        self,
        execution_device: Place | None = None,
        offload: bool = False,
        io_same_device: bool = False,
        weights_map: Weights | None = None,
        offload_buffers: bool = False,
        place_submodules: bool = False,
        skip_keys: str | list[str] | None = None,
        tied_params_map: Ties | None = None,
    ) -> None:
        self.execution_device = execution_device
        self.offload = offload
        self.io_same_device = io_same_device
        self.weights_map = weights_map
        self.offload_buffers = offload_buffers
        self.place_submodules = place_submodules
        self.skip_keys = skip_keys
        self.tied_params_map = tied_params_map
        self.input_device: torch.device | None = None
        self.original_devices: dict[str, torch.device] = {}

    def __repr__(self) -> str:
        shown = ("execution_device", "offload", "io_same_device", "offload_buffers", "place_submodules", "skip_keys")
        return f"AlignDevicesHook({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def init_hook(self, module: nn.Module) -> nn.Module:
        if self.offload:
            self._send_away(module)
        elif self.execution_device is not None:
            self._settle(module, self._tensors(module))
        self.tied_params_map = None  # what it holds would outlive the dispatch
        return module

    def _send_away(self, module: nn.Module) -> None:
        everything = list(self._tensors(module))
        self.original_devices = {name: tensor.device for name, tensor in everything}
        if self.weights_map is None:
            self.weights_map = {name: tensor.detach().to("cpu") for name, tensor in self._travelling(module)}
        travelling = [name for name, _ in self._travelling(module)]
        for name in travelling:
            set_module_tensor_to_device(module, name, META)
        if self.execution_device is not None:
            self._settle(module, [(name, tensor) for name, tensor in everything if name not in travelling])

    def _settle(self, module: nn.Module, tensors: Any) -> None:
        """Puts tensors on the device for good; one without a value yet gets the one that is kept for it."""
        assert self.execution_device is not None
        ties = self.tied_params_map or Ties(module)
        for name, tensor in list(tensors):
            kept = self.weights_map.get(name) if tensor.is_meta and self.weights_map is not None else None
            set_module_tensor_to_device(module, name, self.execution_device, kept, tied_params_map=ties)

    def _tensors(self, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """All that the hook sees to, tied ones under each of their names."""
        yield from module.named_parameters(recurse=self.place_submodules, remove_duplicate=False)
        yield from module.named_buffers(recurse=self.place_submodules)

    def _travelling(self, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Those that come and go; buffers that no checkpoint has never do."""
        buffers = {name for name, _ in module.named_buffers(recurse=self.place_submodules)}
        staying = (
            get_non_persistent_buffers(module, self.place_submodules, fqns=True) if self.offload_buffers else buffers
        )
        return ((name, tensor) for name, tensor in self._tensors(module) if name not in staying)

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.io_same_device:
            self.input_device = device_of([args, kwargs])
        if self.offload:
            self.bring(module, self.execution_device)
        device = None if self.execution_device is None else as_device(self.execution_device)
        return moved(args, device), moved(kwargs, device, self.skip_keys)

    def bring(self, module: nn.Module, device: Place | None) -> None:
        """The weights that are kept elsewhere, on the device."""
        assert self.weights_map is not None
        for name, _ in list(self._travelling(module)):
            kept = self.weights_map[name]
            set_module_tensor_to_device(module, name, kept.device if device is None else device, kept)

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        if self.offload:
            for name, _ in list(self._travelling(module)):
                set_module_tensor_to_device(module, name, META)
        if self.io_same_device and self.input_device is not None:
            output = moved(output, self.input_device, self.skip_keys)
        return output

    def detach_hook(self, module: nn.Module) -> nn.Module:
        if self.offload:
            for name, device in self.original_devices.items():
                if device != META:
                    kept = (self.weights_map or {}).get(name)
                    set_module_tensor_to_device(module, name, device, kept)
        return module


def attach_execution_device_hook(
    module: nn.Module,
    execution_device: Place,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: Ties | None = None,
) -> None:
    """Every module with weights that has no hook yet moves its inputs to the device."""
    if not hasattr(module, "_hf_hook") and len(module.state_dict()) > 0:
        hook = AlignDevicesHook(execution_device, skip_keys=skip_keys, tied_params_map=tied_params_map)
        add_hook_to_module(module, hook)
    if type(module).__name__ not in (preload_module_classes or ()):
        for child in module.children():
            attach_execution_device_hook(child, execution_device, skip_keys, preload_module_classes, tied_params_map)


def attach_align_device_hook(
    module: nn.Module,
    execution_device: Place | None = None,
    offload: bool = False,
    weights_map: Weights | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: Ties | None = None,
) -> None:
    """Every module with tensors of its own brings them when it runs; those of `preload_module_classes` also all below."""
    whole = offload and type(module).__name__ in (preload_module_classes or ())
    if whole or any(True for _ in named_module_tensors(module)):
        hook = AlignDevicesHook(
            execution_device,
            offload=offload,
            weights_map=_weights_of(weights_map, module_name),
            offload_buffers=offload_buffers,
            place_submodules=whole,
            skip_keys=skip_keys,
            tied_params_map=tied_params_map,
        )
        add_hook_to_module(module, hook, append=True)
    for name, child in () if whole else module.named_children():
        attach_align_device_hook(
            child,
            execution_device,
            offload,
            weights_map,
            offload_buffers,
            _below(module_name, name),
            skip_keys,
            preload_module_classes,
            tied_params_map,
        )


def attach_align_device_hook_on_blocks(
    module: nn.Module,
    execution_device: Place | Mapping[str, Place] | None = None,
    offload: bool | Mapping[str, bool] = False,
    weights_map: Weights | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: Ties | None = None,
) -> None:
    """Each block that the mappings name runs on its device, with its weights there for good or for the time it runs."""
    if not isinstance(execution_device, Mapping):
        names = list(offload) if isinstance(offload, Mapping) else [""]
        devices: Mapping[str, Any] = dict.fromkeys(names, execution_device)
    else:
        devices = execution_device
    away = offload if isinstance(offload, Mapping) else dict.fromkeys(devices, offload)
    settings: dict[str, Any] = {"skip_keys": skip_keys, "tied_params_map": tied_params_map}
    for name, part in _blocks(module, module_name):
        own = _weights_of(weights_map, name)
        top = AlignDevicesHook(devices.get(name), io_same_device=name == "", weights_map=own, **settings)
        if name not in away:
            _attach_between(part, name, top, devices)
            continue
        if away[name]:
            if name == "":
                add_hook_to_module(part, AlignDevicesHook(io_same_device=True, skip_keys=skip_keys), append=True)
            attach_align_device_hook(
                part,
                devices[name],
                True,
                weights_map,
                offload_buffers,
                name,
                preload_module_classes=preload_module_classes,
                **settings,
            )
        if not away[name] or not hasattr(part, "_hf_hook"):
            top.place_submodules = not away[name]
            add_hook_to_module(part, top)
        if devices[name] is not None:
            attach_execution_device_hook(part, devices[name], preload_module_classes=preload_module_classes, **settings)


def _blocks(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """All modules with their names in the model, a module before what is in it."""
    return [(".".join(filter(None, (name, inner))), part) for inner, part in module.named_modules()]


def _attach_between(module: nn.Module, name: str, hook: AlignDevicesHook, devices: Mapping[str, Place]) -> None:
    """A module that is no block itself: the model as a whole, or one whose parts were given out one by one."""
    if name:
        hook.execution_device = _device_of_own_tensors(module, name, devices)
    if not name or hook.execution_device is not None:
        add_hook_to_module(module, hook)


def _device_of_own_tensors(module: nn.Module, name: str, devices: Mapping[str, Place]) -> Place | None:
    """A module whose parts were given out one by one: its own tensors must be where it computes with them."""
    if place_of(name, {key: value for key, value in devices.items() if key}) is not None:
        return None  # a block around it has seen to that
    own = [devices.get(_below(name, tensor)) for tensor, _ in named_module_tensors(module)]
    return next((device for device in own if device is not None), None)


def _weights_of(weights: Weights | None, name: str) -> Weights | None:
    return weights if weights is None or not name else PrefixedDataset(weights, f"{name}.")


def _below(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def offloading_hook(module: nn.Module) -> AlignDevicesHook | None:
    """The hook that keeps the module's weights elsewhere, if one does."""
    hook = getattr(module, "_hf_hook", None)
    found = hook.hooks if isinstance(hook, SequentialHook) else (hook,)
    return next((each for each in found if isinstance(each, AlignDevicesHook) and each.offload), None)


def has_offloaded_params(module: nn.Module) -> bool:
    """Whether the module's weights are kept elsewhere while it does not run."""
    return offloading_hook(module) is not None


@contextmanager
def align_module_device(module: nn.Module, execution_device: Place | None = None) -> Iterator[None]:
    """Inside, the module's own weights are on the device, whether they are kept elsewhere or not."""
    hook = offloading_hook(module)
    if hook is not None:
        hook.bring(module, hook.execution_device if execution_device is None else execution_device)
        try:
            yield
        finally:
            hook.post_forward(module, None)
        return
    before = {} if execution_device is None else {name: p.device for name, p in module.named_parameters(recurse=False)}
    for name in before:
        _in_place(module, name, execution_device)
    try:
        yield
    finally:
        for name, device in before.items():
            _in_place(module, name, device)


def _in_place(module: nn.Module, name: str, device: Any) -> None:
    # The parameter stays the same object: optimizers hold it.
    owner, own = owner_of(module, name)
    parameter = getattr(owner, own)
    parameter.data = parameter.data.to(as_device(device))
