"""The graph of a loss: the weights that its backward pass will reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from accel_runtime.strategies.ddp_exchange import Exchange


def leaves(loss: Tensor) -> Iterator[Tensor | None]:
    """The leaves in the order in which a walk meets them; None for a function of Python, which may hide any (checkpoints)."""
    seen: set[Any] = set()
    ahead: list[Any] = [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        elif isinstance(node, BackwardCFunction):
            yield None
        ahead.extend(function for function, _ in node.next_functions)


class Part(NamedTuple):
    """What a loss has of a model."""

    any: bool = False
    whole: bool = False  # all that the model trains
    hidden: bool = False  # nothing that can be seen, behind functions that may hide it


def parts(loss: Tensor, exchanges: list[Exchange]) -> list[Part]:
    """What the loss has of each of the exchanges."""
    trained = [{id(weight) for weight in exchange.weights if weight.requires_grad} for exchange in exchanges]
    missing = set().union(*trained)
    hides = False
    for leaf in leaves(loss):
        missing.discard(id(leaf))
        hides |= leaf is None
        if not missing:
            break
    left = [len(weights & missing) for weights in trained]
    seen = [number < len(weights) for number, weights in zip(left, trained)]
    return [Part(any, not number, hides and not any) for any, number in zip(seen, left)]
