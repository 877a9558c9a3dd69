"""What DeepSpeed's engine adds to a model is not part of it: the model is loaded, copied and pickled as the user wrote it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter

from accel_runtime.errors import UsageError
from accel_runtime.strategies.deepspeed_state import load_weight
from accel_runtime.tree import leaves, replace_leaves

_VERSION = "_version_known"  # on a weight in shards, when it was written to as it should be


def keep_whole(model: Module) -> None:
    """To be called once the engine has started."""
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key, hook in hooks.items():
                if hook.__module__.partition(".")[0] == "deepspeed":
                    hooks[key] = EngineHook(hook)
        module.register_load_state_dict_pre_hook(_load_weights)  # type: ignore[no-untyped-call]
        module.register_load_state_dict_post_hook(_note_versions)  # type: ignore[no-untyped-call]
        _note_versions(module)
    for weight in model.parameters():
        _leave_engine_behind(weight)


def refuse_written(weights: Iterable[Any]) -> None:
    """Refuses weights in shards that the script wrote to: they are gathered copies, or empty, and the engine steps others.

    It never counts as a write what the engine does itself, nor what goes through `weight.data`, which nobody can see.
    """
    for weight in weights:
        if weight._version != getattr(weight, _VERSION, weight._version):
            raise UsageError(
                f"a weight of shape {tuple(weight.ds_shape)} was written to, and under ZeRO 3 that is lost: each process has a "
                "shard of it; write before prepare(), or call model.load_state_dict(...) on every process, or train with fsdp"
            )


def _note_versions(module: Module, *_: Any) -> None:
    for weight in module.parameters(recurse=False):
        if hasattr(weight, "ds_id"):
            setattr(weight, _VERSION, weight._version)


class EngineHook:
    """A hook of the engine; copies of the model have no engine, and their hooks do nothing."""

    resting = False

    def __init__(self, hook: Callable[..., Any] | None = None) -> None:
        self.hook = hook

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return None if self.hook is None or self.resting else self.hook(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineHook, ()


class GatheredMethod:
    """A method of a model in shards, for which the engine gathers weights and follows gradients as for the model's forward."""

    def __init__(self, model: Module, name: str) -> None:
        self.model, self.name = model, name
        self.compute: Callable[..., Any] = getattr(model, name)
        functools.update_wrapper(self, self.compute)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, self.name)  # of a copy, which has no engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self.model._parameters, "_in_forward", False):
            return self.compute(*args, **kwargs)
        before, after = (_of_engine(hooks) for hooks in (self.model._forward_pre_hooks, self.model._forward_hooks))
        for key, hook in before.items():
            if key in self.model._forward_pre_hooks_with_kwargs:
                args, kwargs = hook(self.model, args, kwargs) or (args, kwargs)
            else:
                args = hook(self.model, args) or args
        hooks = [*before.values(), *after.values()]
        _rest(hooks, True)  # `self(x)` in the method would let go of the weights that the rest of it needs
        try:
            result = self.compute(*args, **kwargs)
        finally:
            _rest(hooks, False)
        parts = [part for _, part in leaves(result)]
        # The engine wants tensors alone, and a method may return anything.
        tensors = tuple(part for part in parts if isinstance(part, Tensor))
        for hook in after.values():
            tensors = hook(self.model, args, tensors) or tensors
        made = iter(tensors)
        return replace_leaves(result, [next(made) if isinstance(part, Tensor) else part for part in parts])


def _of_engine(hooks: Mapping[int, Callable[..., Any]]) -> dict[int, EngineHook]:
    return {key: hook for key, hook in hooks.items() if isinstance(hook, EngineHook)}


def _rest(hooks: Iterable[EngineHook], resting: bool) -> None:
    for hook in hooks:
        hook.resting = resting


def _load_weights(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Before `load_state_dict` looks at the weights of one module: what is a shard is then copied to itself."""
    for name, weight in module.named_parameters(recurse=False):
        value = state.get(prefix + name)
        if isinstance(value, Tensor) and value.shape == getattr(weight, "ds_shape", weight.shape):
            load_weight(weight, value)
            if hasattr(weight, "ds_shape"):
                state[prefix + name] = weight.detach()


def _leave_engine_behind(weight: Any) -> None:
    """On the very weight, where `copy` and `pickle` look first."""

    def copied(memo: dict[int, Any]) -> Any:
        return Parameter.__deepcopy__(_whole(weight), memo)  # type: ignore[no-untyped-call]

    def pickled(protocol: Any) -> Any:
        # A clone, for the engine has the memory of all weights in one piece.
        alone: Any = Parameter(_whole(weight).detach().clone(), weight.requires_grad)
        return alone.__reduce_ex__(protocol)

    weight.__deepcopy__, weight.__reduce_ex__ = copied, pickled


def _whole(weight: Any) -> Parameter:
    if weight.numel() != getattr(weight, "ds_numel", weight.numel()):
        raise UsageError(
            "under ZeRO 3 each process has a shard of every weight, so the model cannot be copied or pickled; copy it before "
            "prepare(), or take accelerator.get_state_dict(model)"
        )
    return weight  # type: ignore[no-any-return]
