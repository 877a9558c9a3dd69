"""The graph of a loss: the weights that its backward pass will reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

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


def reached(loss: Tensor, exchanges: list[Exchange]) -> list[bool]:
    """For each of the exchanges, whether the loss has a part of it. Ends as soon as a part of each was met."""
    owners: defaultdict[int, list[int]] = defaultdict(list)
    for number, exchange in enumerate(exchanges):
        for weight in exchange.weights:
            owners[id(weight)].append(number)
    everyone = range(len(exchanges))
    found: set[int] = set()
    for leaf in leaves(loss):
        found.update(everyone if leaf is None else owners.get(id(leaf), ()))
        if len(found) == len(exchanges):
            break
    return [number in found for number in everyone]
