"""Weights that a script uses by hand, where each process holds a part of them: right where it can be, else with a remedy."""

from __future__ import annotations

import functools
import sys
from types import TracebackType
from typing import Any

from accel_runtime.errors import AccelError
from accel_runtime.strategies.fsdp_whole import OF_SHARDS

REMEDY = (
    "Under strategy fsdp each process holds a part of every weight: call model(x) itself, which gathers them; take weights "
    "from accelerator.get_state_dict(model), and a whole model from copy.deepcopy(model), on all processes; for gradients of "
    "gradients, or to leave the script as it is, use --strategy ddp"
)


def explain_failures() -> None:
    """Adds the remedy to what torch says of shards when that ends the script."""
    before = sys.excepthook
    if getattr(before, "func", None) is not _with_remedy:
        sys.excepthook = functools.partial(_with_remedy, before)


def _with_remedy(then: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, AccelError) and OF_SHARDS.search(str(error)):
        error.add_note(REMEDY)
    then(kind, error, trace)
