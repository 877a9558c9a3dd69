"""Weights that a script freezes or thaws while it trains: DDP averages the gradients of those that it found when it was made.

One that is frozen since would never come, and the next step stop; one that is thawed would be averaged by nobody, and part
from process to process in silence. So DDP's list is made anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel


def trained(model: Module) -> list[Parameter]:
    """The weights that get gradients, in the order in which torch counts them."""
    return [weight for weight in model.parameters() if weight.requires_grad]


@contextmanager
def thawed(model: Module) -> Iterator[None]:
    """DDP takes no model without a weight to train: one that the script thaws later has its smallest for as long."""
    floating = [weight for weight in model.parameters() if weight.is_floating_point()]
    lent = [] if trained(model) else sorted(floating, key=lambda weight: weight.numel())[:1]
    for weight in lent:
        weight.requires_grad_(True)
    yield
    for weight in lent:
        weight.requires_grad_(False)


def exchange_anew(model: DistributedDataParallel) -> None:
    """From now on the gradients of those weights are averaged that are trained now, by the same hooks as before."""
    wrapped: Any = model  # what DDP does when it is made, or unpickled
    weights, sparse = wrapped._build_params_for_reducer()
    names = wrapped._build_debug_param_to_name_mapping(weights)
    wrapped._ddp_init_helper(weights, sparse, names, False)
    hooks = list(wrapped._comm_hooks)
    wrapped._comm_hooks.clear()
    for hook, state in hooks:
        for kept in ("error_dict", "p_memory_dict", "q_memory_dict"):  # of PowerSGD, by the number of a message
            getattr(state, kept, {}).clear()
        wrapped.register_comm_hook(state=state, hook=hook)
