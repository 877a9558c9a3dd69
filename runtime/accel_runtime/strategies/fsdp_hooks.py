"""Gradient hooks of weights: torch never runs those of shards, whose gradients it sets after the exchange."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Tensor], Tensor | None]


class WeightHooks:
    """Those of one weight, which run on it while it is gathered: with this process's own gradient, as under DDP."""

    def __init__(self, unit: Module, owner: Module, name: str) -> None:
        self.unit, self.owner, self.name = unit, owner, name  # the weight is gathered with the unit
        self.hooks: dict[int, Hook] | None = None
        self.gathered: Tensor | None = None

    def take(self, before: Tensor) -> None:
        """Those that the weight had before it was sharded; handles of the script go on removing them."""
        if before._backward_hooks:
            self._begin(before._backward_hooks)
        for hook in (getattr(before, "_post_accumulate_grad_hooks", None) or {}).values():
            self.owner._parameters[self.name].register_post_accumulate_grad_hook(hook)  # type: ignore[union-attr]

    def add(self, hook: Hook) -> RemovableHandle:
        hooks = self._begin(OrderedDict()) if self.hooks is None else self.hooks
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    def __deepcopy__(self, memo: object) -> None:
        """A copy of the weight is of no unit."""

    def _begin(self, hooks: dict[int, Hook]) -> dict[int, Hook]:
        self.hooks = hooks
        self.unit.register_forward_pre_hook(self._attach)
        return hooks

    def _attach(self, *_: object) -> None:
        weight = self.owner._parameters[self.name]
        if weight is not self.gathered and isinstance(weight, Tensor) and not isinstance(weight, DTensor):
            self.gathered = weight  # mostly the same tensor each time
            if weight.requires_grad:
                weight.register_hook(self._run)  # type: ignore[no-untyped-call]

    def _run(self, gradient: Tensor) -> Tensor:
        for hook in list((self.hooks or {}).values()):
            changed: Any = hook(gradient)
            gradient = gradient if changed is None else changed
        return gradient
