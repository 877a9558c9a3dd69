"""Weights that have no part in a loss: DDP waits for their gradients, and the other processes with it.

One process trains on without them, and so must many. What DDP still waits for after a backward pass is given a gradient of
zero, so that messages are complete; a weight that had a part on no process is left without a gradient, as on one process.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import embedding

from accel_runtime.strategies.ddp_sparse import sparse_weights

_NUMBERS = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")


def complete(model: Any) -> None:
    """Ends the exchange of gradients of a backward pass in which some weights of a DDP had no part."""
    try:
        model.reducer._check_reducer_finalized()
    except RuntimeError as error:
        if not (found := _NUMBERS.search(str(error))):
            raise
        give_nothing(model, [model.trained[int(number)] for number in found[1].split()])


def give_nothing(model: Any, weights: list[Parameter]) -> None:
    """A gradient of zero for each of the weights; one that has none on any process is left without."""
    without = [weight for weight in weights if weight.grad is None]
    sparse = sparse_weights(model.module)
    nothing = torch.stack([_nothing_of(weight, weight in sparse) for weight in weights]).sum()
    nothing.backward()  # type: ignore[no-untyped-call]
    for weight in without:
        if weight.grad is not None and not _has_any(weight.grad):
            weight.grad = None


def _nothing_of(weight: Tensor, is_sparse: bool) -> Tensor:
    """A zero whose gradient is of the kind that DDP expects."""
    if is_sparse:
        return embedding(torch.empty(0, dtype=torch.long, device=weight.device), weight, sparse=True).sum()
    return (weight.flatten()[:1] * 0).sum()


def _has_any(gradient: Tensor) -> bool:
    return gradient._nnz() > 0 if gradient.is_sparse else bool(gradient.any())
