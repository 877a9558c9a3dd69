"""What went wrong in a run, in a few lines: the rank that failed first, and the others in short."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from accel_runtime.launch.layout import Layout

# A rank that died of one of these was not brought down by another rank's error. An abort is not among them: gloo
# aborts a rank whose peer has left a collective.
KILLS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)


class EndedProcess(Protocol):
    """A process that ended badly, as torch's agent describes it."""

    pid: int
    exitcode: int


@dataclass(frozen=True, slots=True)
class Failure:
    """`moment` is when it happened, in seconds; `trace` is empty for a process that was killed."""

    rank: int
    reason: str
    moment: float
    trace: str = ""


def failures_of(seen: Mapping[int, EndedProcess], folder: Path, since: float) -> list[Failure]:
    """All failures of the last attempt, the first one first.

    The agent lists only the processes that were gone when it looked, and the first to fail is often slower to exit than
    those that it pulls down; what the ranks left in their error files under `folder` completes the list.
    """
    recorded = {failure.rank: failure for failure in _recorded(folder, since)}
    ended = {rank: _ended(rank, process) for rank, process in seen.items() if rank not in recorded}
    return sorted([*recorded.values(), *ended.values()], key=lambda failure: failure.moment)


def digest(failures: Sequence[Failure], layout: Layout, log_dir: str | None) -> str:
    """The first failure with its exception and place, then one line for each rank that failed after it."""
    first, *others = failures
    lines = [f"accel launch: rank {first.rank} of {layout.processes} failed first: {first.reason}"]
    lines += [f"  then rank {failure.rank}: {textwrap.shorten(failure.reason, 110)}" for failure in others]
    silent = layout.local_processes - len(failures)
    if silent > 0:
        lines += [f"  {silent} other process{'es were' if silent > 1 else ' was'} ended by the launcher"]
    if log_dir:
        lines += [f"  logs of every rank: {log_dir}"]
    return "\n".join(lines) + "\n"


def _recorded(folder: Path, since: float) -> list[Failure]:
    files = [path for path in folder.glob("*/attempt_*/*/error.json") if path.stat().st_mtime >= since]
    last = max((_attempt(path) for path in files), default=0)
    return [_read(path) for path in files if _attempt(path) == last]


def _attempt(path: Path) -> int:
    return int(path.parent.parent.name.removeprefix("attempt_"))


def _read(path: Path) -> Failure:
    message: dict[str, Any] = json.loads(path.read_text())["message"]
    extra = message["extraInfo"]
    return Failure(int(extra["rank"]), message["message"] + extra["where"], extra["moment"], extra["py_callstack"])


def _ended(rank: int, process: EndedProcess) -> Failure:
    """A process that left no word. One that was killed counts as the first, one that the agent ended as the last."""
    if process.exitcode >= 0:
        reason = f"process {process.pid} ended with exit code {process.exitcode}"
        return Failure(rank, reason, float("inf"))
    number = signal.Signals(-process.exitcode)
    hint = " (often the system is out of memory)" if number == signal.SIGKILL else ""
    moment = 0.0 if number in KILLS else float("inf")
    return Failure(rank, f"process {process.pid} was killed by {number.name}{hint}", moment)
