"""Copies of a sharded model: whole and plain, as the script built it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter

from accel_runtime.strategies.fsdp_whole import whole

HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_state_dict_pre_hooks",
)
OURS = ("torch.distributed.fsdp", "accel_runtime.strategies")


class Unsharded:
    """What a module is without what sharding adds to it; to be made before that."""

    def __init__(self, module: Module) -> None:
        self.kind = type(module)
        self.own = dict(vars(module))

    def let_copy(self, module: Module, announce: Callable[[str], None]) -> None:
        """To be called once the module is sharded: all processes must copy it together."""
        added = {*vars(module)} - {*self.own} | {"forward", "__deepcopy__"}
        forward = {name: self.own[name] for name in ("forward",) if name in self.own}

        def copied(memo: dict[int, Any]) -> Module:
            if not memo:
                announce(f"a copy of {self.kind.__name__}")
            _gather(module, memo)
            made: Module = self.kind.__new__(self.kind)
            memo[id(module)] = made
            kept = {name: value for name, value in vars(module).items() if name not in added} | forward
            kept |= {name: _without_ours(kept[name]) for name in HOOKS}
            vars(made).update(copy.deepcopy(kept, memo))
            for layer in made.modules():
                vars(layer).update({name: _without_ours(vars(layer)[name]) for name in HOOKS})
            return made

        vars(module)["__deepcopy__"] = copied


def _without_ours(hooks: OrderedDict[int, Any]) -> OrderedDict[int, Any]:
    """The script's own: layers have hooks of the groups in which their weights are sharded, some since the model first ran."""
    return OrderedDict((key, hook) for key, hook in hooks.items() if not _home(hook).startswith(OURS))


def _home(hook: Any) -> str:
    function = getattr(hook, "hook", hook)  # as torch keeps those of state dictionaries
    return str(getattr(getattr(function, "func", function), "__module__", ""))


def _gather(module: Module, memo: dict[int, Any]) -> None:
    """Whole weights, for all copies of the shards that follow."""
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()
    for weight in module.parameters():
        if isinstance(weight, DTensor) and id(weight) not in memo:
            memo[id(weight)] = Parameter(whole(weight.detach()).clone(), weight.requires_grad)
