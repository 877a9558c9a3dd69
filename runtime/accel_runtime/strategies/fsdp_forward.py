"""`model.forward(x)` as `model(x)`: weights are gathered for the call of a module, and its method alone would meet shards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.nn import Module

Function = Callable[..., Any]


class GatheredForward:
    """Stands for a module's `forward`: called by name it calls the module, called by the module it computes."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.compute: Function = module.forward
        self.gathered = False
        functools.update_wrapper(self, self.compute)  # so that its signature is found
        module.register_forward_pre_hook(self._enter)
        module.register_forward_hook(self._leave, always_call=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compute(*args, **kwargs) if self.gathered else self.module(*args, **kwargs)

    def _enter(self, *_: Any) -> None:
        self.gathered = True

    def _leave(self, *_: Any) -> None:
        self.gathered = False


def change_computation(module: Module, changed: Callable[[Function], Function]) -> None:
    """Inside of the gathering, where the module has any."""
    forward = module.forward
    if isinstance(forward, GatheredForward):
        forward.compute = changed(forward.compute)
    else:
        module.forward = changed(forward)
