"""Parameters that got no gradient, by their names: torch gives their numbers."""

from __future__ import annotations

import re

from torch.nn import Module

from accel_runtime.errors import UsageError

_NUMBERS = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")
SHOWN = 5


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
