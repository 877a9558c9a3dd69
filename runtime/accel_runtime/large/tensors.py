"""The tensors of a model by their names: where they are, how one is replaced, which of them are one and the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.found_accelerator import found_accelerator

Place = int | str | torch.device
META = torch.device("meta")


def as_device(place: Place) -> torch.device:
    """The device that a device map names; a number is one of the accelerator that torch sees."""
    if not isinstance(place, int):
        return torch.device(place)
    accelerator = found_accelerator()
    return torch.device(accelerator.type if accelerator else "cuda", place)


def check_device_same(first_device: torch.device, second_device: torch.device) -> bool:
    """Whether both name the same device: a GPU without a number is the first."""
    return _numbered(first_device) == _numbered(second_device)


def _numbered(device: torch.device) -> torch.device:
    number: int | None = device.index
    return torch.device(device.type, 0) if number is None and device.type not in ("cpu", "meta") else device


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """The type that `torch.float16`, "float16" or "torch.float16" names."""
    if not isinstance(dtype, str):
        return dtype
    found = getattr(torch, dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"dtype={dtype!r} is not a type of torch; write it as 'float16' or torch.float16")
    return found


def named_module_tensors(
    module: nn.Module, include_buffers: bool = True, recurse: bool = False, remove_non_persistent: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """Parameters, then buffers; without `recurse` those of the module itself."""
    yield from module.named_parameters(recurse=recurse)
    if include_buffers:
        left_out = get_non_persistent_buffers(module, recurse, fqns=True) if remove_non_persistent else set()
        yield from (item for item in module.named_buffers(recurse=recurse) if item[0] not in left_out)


def get_non_persistent_buffers(module: nn.Module, recurse: bool = False, fqns: bool = False) -> set[str]:
    """Buffers that no state dict has; with `fqns` by their names from this module on."""
    modules = module.named_modules() if recurse else [("", module)]
    named = ((prefix, name) for prefix, part in modules for name in part._non_persistent_buffers_set)
    return {f"{prefix}.{name}" if fqns and prefix else name for prefix, name in named}


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The submodule that holds the tensor, and the tensor's name in it."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    if last not in owner._parameters and last not in owner._buffers:
        raise UsageError(f"{type(owner).__name__} has no parameter or buffer {last} ({name} was asked for)")
    return owner, last


def set_module_tensor_to_device(
    module: nn.Module,
    tensor_name: str,
    device: Place,
    value: Tensor | None = None,
    dtype: str | torch.dtype | None = None,
    fp16_statistics: Tensor | None = None,
    tied_params_map: Ties | None = None,
    non_blocking: bool = False,
    clear_cache: bool = True,
) -> None:
    """Puts a parameter or buffer on the device, with another value if one is given; it keeps its type unless told."""
    if fp16_statistics is not None:
        raise ConfigError("fp16_statistics are of weights that bitsandbytes quantized, which cannot be moved here")
    owner, name = owner_of(module, tensor_name)
    old = getattr(owner, name)
    target = as_device(device)
    if tied_params_map is not None and (known := tied_params_map.on(old, target)) is not None:
        owner._parameters[name] = known
        return
    new = _renewed(tensor_name, old, target, value, as_dtype(dtype), non_blocking)
    if name in owner._buffers:
        owner._buffers[name] = new
    elif new is not old:
        owner._parameters[name] = parameter = _parameter_like(old, new)
        if tied_params_map is not None:
            tied_params_map.remember(old, target, parameter)


def _renewed(
    name: str, old: Tensor, device: torch.device, value: Tensor | None, dtype: torch.dtype | None, non_blocking: bool
) -> Tensor:
    if value is None:
        if old.is_meta and device != META:
            raise UsageError(f"{name} has no value yet (it is on the meta device), so it cannot go to {device}")
        return old.to(device, dtype if old.is_floating_point() else None, non_blocking=non_blocking)
    value = torch.as_tensor(value)
    if value.shape != old.shape:
        raise UsageError(f"{name} has the shape {tuple(old.shape)}, and the value for it {tuple(value.shape)}")
    # As load_state_dict: without a word about it the model's own type stays.
    kept = dtype if value.is_floating_point() else value.dtype
    return value.to(device, old.dtype if dtype is None else kept, non_blocking=non_blocking)


def _parameter_like(old: Tensor, new: Tensor) -> nn.Parameter:
    needs_gradient = old.requires_grad and new.is_floating_point()
    if type(old) is nn.Parameter:
        made: Any = nn.Parameter(new.detach(), needs_gradient)
    else:
        made = torch.Tensor._make_subclass(type(old), new.detach(), needs_gradient)
    made.__dict__.update(old.__dict__)
    return made  # type: ignore[no-any-return]


class Ties:
    """Tied parameters while a model is spread out: each comes to a device once, whatever names it has."""

    def __init__(self, model: nn.Module) -> None:
        tied = [owner_of(model, name) for group in find_tied_parameters(model) for name in group]
        # The parameters themselves are held: the number of one that is gone could be another's.
        self._originals = {id(getattr(owner, name)): getattr(owner, name) for owner, name in tied}
        self._moved: dict[tuple[int, torch.device], nn.Parameter] = {}

    def on(self, tensor: Tensor, device: torch.device) -> nn.Parameter | None:
        return self._moved.get((id(tensor), device)) if id(tensor) in self._originals else None

    def remember(self, tensor: Tensor, device: torch.device, moved: nn.Parameter) -> None:
        if id(tensor) in self._originals and device != META:
            self._moved[id(tensor), device] = moved


def find_tied_parameters(model: nn.Module, **ignored: Any) -> list[list[str]]:
    """Groups of names that are one parameter, each group sorted."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [sorted(group) for group in names.values() if len(group) > 1]


def retie_parameters(model: nn.Module, tied_params: list[list[str]]) -> None:
    """Makes one parameter again of those names of a group that have a value on the same device, or wait for one."""
    for group in tied_params:
        first: dict[torch.device, Tensor] = {}
        valued = [place for place in (owner_of(model, name) for name in group) if not getattr(*place).is_meta]
        for owner, name in valued:
            parameter = getattr(owner, name)
            setattr(owner, name, first.setdefault(parameter.device, parameter))


def id_tensor_storage(tensor: Tensor) -> tuple[torch.device, int, int]:
    """What tells one storage from another while both are alive."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()
