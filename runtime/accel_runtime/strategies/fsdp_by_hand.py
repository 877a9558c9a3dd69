"""Weights that a script uses by hand, where each process holds a part of them: right where it can be, else with a remedy."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from accel_runtime.errors import AccelError, UsageError

# Of these only the type and the device of the weight are wanted, as for the first state of a recurrent layer.
MAKERS = ("new", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
# What torch says of a shard beside a whole tensor or in the place of one, and of weights that are no longer gathered.
OF_SHARDS = re.compile(
    r"DTensor|tensor subclasses|sharded dimension|Invariant encountered: value was None|setStorage: sizes"
)
REMEDY = (
    "Under strategy fsdp each process holds a part of every weight: call model(x) itself, which gathers them; take weights "
    "that are read, copied or averaged by hand from accelerator.get_state_dict(model), on all processes; for gradients of "
    "gradients, or to leave the script as it is, use --strategy ddp"
)


def make_plain_tensors(weights: Iterable[Tensor], device: torch.device) -> None:
    """Lets `weight.new_zeros(...)` and the like make plain tensors where the model runs."""
    for weight in weights:
        if isinstance(weight, DTensor):
            plain = torch.empty(0, dtype=weight.dtype, device=device)
            vars(weight).update({name: getattr(plain, name) for name in MAKERS})


def refuse_figures_of_parts() -> None:
    """Refuses a number of a tensor that is still to be added up over the processes: torch gives that of this one's part."""
    for name in ("item", "__float__", "__int__"):
        if name not in vars(DTensor):
            setattr(DTensor, name, functools.partialmethod(_number, getattr(Tensor, name)))


def _number(tensor: DTensor, number: Any) -> Any:
    if any(placement.is_partial() for placement in tensor.placements) and tensor.device_mesh.size() > 1:
        raise UsageError(
            "a number is taken of a sum, a norm or the like of sharded weights or gradients, and it would be of this process's "
            "part; the norm of all gradients is what accelerator.clip_grad_norm_ returns, weights are in "
            "accelerator.get_state_dict(model), and .full_tensor() adds up a tensor: all on all processes"
        )
    return number(tensor)


def explain_failures() -> None:
    """Adds the remedy to what torch says of shards when that ends the script."""
    before = sys.excepthook
    if getattr(before, "func", None) is not _with_remedy:
        sys.excepthook = functools.partial(_with_remedy, before)


def _with_remedy(then: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, AccelError) and OF_SHARDS.search(str(error)):
        error.add_note(REMEDY)
    then(kind, error, trace)
