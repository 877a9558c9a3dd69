"""What went wrong in a run, in a few lines: the rank that failed first, and the others in short."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Mapping
from typing import Any, Protocol

from accel_runtime.launch.layout import Layout

# An abort is not among them: gloo aborts a rank whose peer has left a collective.
KILLS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)


class Failure(Protocol):
    """A process that ended badly, as torch's agent describes it."""

    pid: int
    exitcode: int
    message: Any  # text, or what the worker left in its error file
    timestamp: int


def digest(failures: Mapping[int, Failure], layout: Layout, log_dir: str | None) -> str:
    """The first failure with its exception and place, then one line for each rank that failed after it."""
    first, *others = sorted(failures, key=lambda rank: _order(failures[rank]))
    lines = [f"accel launch: rank {first} of {layout.processes} failed first: {_reason(failures[first])}"]
    lines += [f"  then rank {rank}: {textwrap.shorten(_reason(failures[rank]), 110)}" for rank in others]
    silent = layout.local_processes - len(failures)
    if silent > 0:
        lines += [f"  {silent} other process{'es were' if silent > 1 else ' was'} ended by the launcher"]
    if log_dir:
        lines += [f"  logs of every rank: {log_dir}"]
    return "\n".join(lines) + "\n"


def _order(failure: Failure) -> tuple[bool, float]:
    """Killed ranks first: they leave no moment of their own, and no other rank's error can kill them."""
    if isinstance(failure.message, dict):
        extra = failure.message.get("extraInfo", {})
        return True, float(extra.get("moment", failure.timestamp))
    return -failure.exitcode not in KILLS, failure.timestamp


def _reason(failure: Failure) -> str:
    if isinstance(failure.message, dict):
        where = failure.message.get("extraInfo", {}).get("where", "")
        return f"{failure.message.get('message', 'no message')}{where}"
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        hint = " (often the system is out of memory)" if name == "SIGKILL" else ""
        return f"process {failure.pid} was killed by {name}{hint}"
    return f"process {failure.pid} ended with exit code {failure.exitcode}"
