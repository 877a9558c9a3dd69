"""Process control for scripts that do not train: inference, preprocessing, evaluation."""

from __future__ import annotations

from typing import Any

from accel_runtime.handlers import InitProcessGroupKwargs
from accel_runtime.not_here import absent
from accel_runtime.options import Options
from accel_runtime.processes import Processes
from accel_runtime.resolve import session_from


class PartialState(Processes):
    """The processes of this run without anything about training.

    >>> state = PartialState()
    >>> with state.split_between_processes(["a", "b", "c"]) as mine: ...
    """

    def __init__(self, cpu: bool = False, **group: Any) -> None:
        session = session_from(Options(cpu=cpu), (InitProcessGroupKwargs(**group),) if group else ())
        super().__init__(session.world, session.device, session.collectives)


__getattr__ = absent(__name__)
