"""What runs before and after the forward of a module, and may change what goes in and comes out."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from accel_runtime.large.tensors import Place, as_device
from accel_runtime.memory import clear_device_cache
from accel_runtime.tree import Tree, leaves, place

# What `guard_moves` puts on a model.
GUARDED = ("to", "cuda", "npu", "xpu", "mlu", "sdaa", "musa")


class ModelHook:
    """Called around the forward of its module, with its keyword arguments too; every method may be left as it is."""

    no_grad = False

    def init_hook(self, module: nn.Module) -> nn.Module:
        """When it is attached."""
        return module

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Before the forward; returns what it is called with."""
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        """After the forward; returns what the caller gets."""
        return output

    def detach_hook(self, module: nn.Module) -> nn.Module:
        """When it is taken off."""
        return module


class SequentialHook(ModelHook):
    """Several hooks, one after the other at each event."""

    def __init__(self, *hooks: ModelHook) -> None:
        self.hooks = hooks

    def init_hook(self, module: nn.Module) -> nn.Module:
        return functools.reduce(lambda given, hook: hook.init_hook(given), self.hooks, module)

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for hook in self.hooks:
            args, kwargs = hook.pre_forward(module, *args, **kwargs)
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        return functools.reduce(lambda given, hook: hook.post_forward(module, given), self.hooks, output)

    def detach_hook(self, module: nn.Module) -> nn.Module:
        return functools.reduce(lambda given, hook: hook.detach_hook(given), self.hooks, module)


def add_hook_to_module(module: nn.Module, hook: ModelHook, append: bool = False) -> nn.Module:
    """The module with the hook: in the place of the one that it had, or with `append` after it."""
    earlier = getattr(module, "_hf_hook", None)
    if append and earlier is not None:
        remove_hook_from_module(module)
        hook = SequentialHook(earlier, hook)
    # Any: the names are Accelerate's, since transformers and diffusers read and set them.
    target: Any = module
    if not hasattr(module, "_old_forward"):
        target._old_forward = module.forward
    target = hook.init_hook(module)
    target._hf_hook = hook
    target.forward = functools.update_wrapper(functools.partial(_hooked_forward, target), target._old_forward)
    return target  # type: ignore[no-any-return]


def _hooked_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    hook: ModelHook = module._hf_hook
    args, kwargs = hook.pre_forward(module, *args, **kwargs)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not hook.no_grad):
        output = module._old_forward(*args, **kwargs)
    return hook.post_forward(module, output)


def remove_hook_from_module(module: nn.Module, recurse: bool = False) -> nn.Module:
    """The module as it was before a hook was added, with `recurse` also those in it."""
    target: Any = module
    if hasattr(module, "_hf_hook"):
        target._hf_hook.detach_hook(module)
        del target._hf_hook
    if hasattr(module, "_old_forward"):
        original = vars(module).pop("_old_forward")
        vars(module).pop("forward", None)
        if module.forward != original:  # it was not the class's own
            target.forward = original
    for name in GUARDED:
        module.__dict__.pop(name, None)
    for child in module.children() if recurse else ():
        remove_hook_from_module(child, recurse)
    return module


def remove_hook_from_submodules(module: nn.Module) -> None:
    """Takes all hooks off, in the whole model."""
    remove_hook_from_module(module, recurse=True)


def device_of(tree: Tree) -> torch.device | None:
    """Where the first tensor of nested arguments is."""
    return next((leaf.device for _, leaf in leaves(tree) if isinstance(leaf, Tensor)), None)


def moved(tree: Tree, device: torch.device | None, skip_keys: str | list[str] | None = None) -> Tree:
    """The arguments or the output on the device; what the keys of a mapping say to skip stays where it is."""
    if device is None:
        return tree
    skipped = [skip_keys] if isinstance(skip_keys, str) else skip_keys or []
    if skipped and isinstance(tree, dict):
        held = {key: tree[key] for key in skipped if key in tree}
        rest = place({key: item for key, item in tree.items() if key not in held}, device)
        ordered = {key: held.get(key, rest.get(key)) for key in tree}
        return ordered if type(tree) is dict else type(tree)(**ordered)
    return place(tree, device)


class CpuOffload(ModelHook):
    """Brings a whole model to the device when it runs, and the one that ran before it back to the CPU."""

    def __init__(
        self, execution_device: Place | None = None, prev_module_hook: UserCpuOffloadHook | None = None
    ) -> None:
        self.execution_device = default_device() if execution_device is None else as_device(execution_device)
        self.prev_module_hook = prev_module_hook

    def init_hook(self, module: nn.Module) -> nn.Module:
        return module.to("cpu")

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.prev_module_hook is not None:
            self.prev_module_hook.offload()
            clear_device_cache()
        module.to(self.execution_device)
        return place(args, self.execution_device), place(kwargs, self.execution_device)


class UserCpuOffloadHook:
    """A model that comes to the device when it runs: `offload()` sends it back, `remove()` leaves it where it is."""

    def __init__(self, model: nn.Module, hook: ModelHook) -> None:
        self.model = model
        self.hook = hook

    def offload(self) -> None:
        self.hook.init_hook(self.model)

    def remove(self) -> None:
        remove_hook_from_module(self.model)


class LayerwiseCastingHook(ModelHook):
    """Keeps the weights of a layer in a narrow type and computes in a wide one; what the narrow type rounds is lost."""

    def __init__(self, storage_dtype: torch.dtype, compute_dtype: torch.dtype, non_blocking: bool = False) -> None:
        self.storage_dtype = storage_dtype
        self.compute_dtype = compute_dtype
        self.non_blocking = non_blocking

    def init_hook(self, module: nn.Module) -> nn.Module:
        return module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        module.to(dtype=self.compute_dtype, non_blocking=self.non_blocking)
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)
        return output


def default_device() -> torch.device:
    """The first device of the accelerator that torch sees, else the CPU."""
    return as_device(0) if torch.accelerator.is_available() else torch.device("cpu")
