"""Weights that have no part in the loss: DDP waits for their gradients, unless it is told to look for such weights.

One process trains on without them, and so must many. Whether a model has any is looked up once, in the first loss that
goes through it, and agreed on by all processes; from then on DDP looks for them, in the graph of each loss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.nn import Module

from accel_runtime.errors import UsageError
from accel_runtime.strategies.ddp_freezing import exchange_anew

_NUMBERS = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")
SHOWN = 5
LOOKS = 100  # at losses that have nothing of a model; a target network may never be trained
NONE, ALL, SOME = range(3)  # of a model's weights that a loss is computed from


def look_for_unused(loss: Tensor, models: Sequence[Any]) -> None:
    """Tells DDP to look for weights without a gradient in those models of which the loss, on any process, has only some."""
    if any(model._join_config.enable for model in models):
        return  # processes that ran out of data would not take part
    found, hides = _weights_in(loss)
    shares = []
    for model in models:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        used = sum(id(weight) in found for weight in trained)
        shares.append(NONE if not used else ALL if hides or used == len(trained) else SOME)
    agreed = torch.tensor(shares, device=next(models[0].parameters()).device)
    dist.all_reduce(agreed, dist.ReduceOp.MAX)
    for model, share in zip(models, agreed.tolist()):
        model.looks = model.looks - 1 if share == NONE else 0
        if share == SOME:
            model.searches = True
            exchange_anew(model)


def with_gradients_of_before(loss: Tensor, model: Module) -> Tensor:
    """The loss, with a part of nothing for weights that have gradients of passes before, not yet exchanged, and none of it."""
    found, _ = _weights_in(loss)
    left = [weight for weight in model.parameters() if weight.grad is not None and id(weight) not in found]
    return loss + sum((weight.flatten()[:1] * 0).sum() for weight in left) if left else loss


def _weights_in(loss: Tensor) -> tuple[set[int], bool]:
    """The weights that a loss is computed from, and whether there may be more of them, in a function that hides its own."""
    found: set[int] = set()
    hides = False
    waiting: list[Any] = [loss.grad_fn]
    seen = set(waiting)
    for node in waiting:
        if node is None:
            continue
        if (weight := getattr(node, "variable", None)) is not None:
            found.add(id(weight))
        hides |= isinstance(node, BackwardCFunction) and "DDPSink" not in type(node).__name__
        for following, _ in node.next_functions:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return found, hides


def refuse_unused(model: Module, trained: list[str], error: RuntimeError) -> None:
    """Raises the error in other words if it is torch's about parameters without a gradient."""
    if not (found := _NUMBERS.search(str(error))):
        return
    names = [trained[int(number)] for number in found[1].split()]
    raise UsageError(
        f"{len(names)} parameters of {type(model).__name__} had no part in the loss of the last step, so their gradients "
        f"could not be averaged: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}; freeze them with "
        "requires_grad_(False), or pass DistributedDataParallelKwargs(find_unused_parameters=True)"
    ) from error
