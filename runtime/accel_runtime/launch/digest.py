"""What went wrong in a run, in a few lines: the rank that failed first, and the others in short."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from accel_runtime.launch.ends import Attempt, End
from accel_runtime.launch.layout import Layout
from accel_runtime.launch.lost import lost_another, waited_in_vain

# A rank that died of one of these was not brought down by another rank's error. An abort is not among them: gloo
# aborts a rank whose peer has left a collective.
KILLS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)
LINES_SHOWN = 100  # of a rank whose output was not on the terminal


class Blame(IntEnum):
    """Why a rank ended, the likeliest cause of a failed run first."""

    KILLED = 0
    FAILED = 1
    LEFT = 2  # ended in order, while others still needed it
    FROZEN = 3  # did not come to a collective in time
    LOST = 4  # lost another rank
    ABORTED = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """`moment` is when it happened, in seconds; `trace` is empty for a process that left no word."""

    rank: int
    reason: str
    moment: float
    blame: Blame = Blame.FAILED
    trace: str = ""


def failures_of(attempt: Attempt, folder: Path) -> list[Failure]:
    """All failures of an attempt, the likeliest cause first.

    The processes that were gone when the launcher looked are not enough: the first to fail is often slower to exit than
    those that it pulls down. What the ranks left in their error files under `folder` completes the list.
    """
    recorded = {failure.rank: failure for failure in _recorded(folder, attempt)}
    silent = [end for rank, end in sorted(attempt.ends.items()) if rank not in recorded]
    failures = [*recorded.values(), *(_ended(end) for end in silent if end.code != 0 and not end.by_launcher)]
    if failures and all(failure.blame in (Blame.LOST, Blame.ABORTED) for failure in failures):
        failures += _who_was_lost(failures, silent)
    return sorted(failures, key=lambda failure: (failure.blame, failure.moment))


def digest(failures: Sequence[Failure], layout: Layout, log_dir: str | None) -> str:
    """The first failure with its exception and place, then one line for each rank that failed after it."""
    first, *others = failures
    lines = [f"accel launch: rank {first.rank} of {layout.processes} {_verb(first)}: {first.reason}"]
    lines += [f"  then rank {failure.rank}: {textwrap.shorten(failure.reason, 110)}" for failure in others]
    silent = layout.local_processes - len(failures)
    if silent > 0:
        lines += [f"  {silent} other process{'es were' if silent > 1 else ' was'} ended by the launcher"]
    if first.blame is Blame.LOST:
        elsewhere = "; the cause is in the digest of another machine" if layout.machines > 1 else ""
        lines += [f"  it lost another rank, and none here failed before it{elsewhere}", first.trace.rstrip()]
    if log_dir:
        lines += [f"  logs of every rank: {log_dir}"]
    return "\n".join(line for line in lines if line) + "\n"


def last_words(rank: int, attempt: Attempt, folder: Path) -> str:
    """What a rank that is not shown wrote before it failed; empty for one that was on the terminal."""
    for log in folder.glob(f"*/attempt_{attempt.number}/*/rank_{rank}.log"):
        lines = log.read_text(errors="replace").splitlines()
        if lines:
            cut = f", the last {LINES_SHOWN} of {len(lines)} lines" if len(lines) > LINES_SHOWN else ""
            return "\n".join([f"accel: output of rank {rank}{cut}:", *lines[-LINES_SHOWN:]]) + "\n"
    return ""


def _verb(first: Failure) -> str:
    return {Blame.LEFT: "left first", Blame.FROZEN: "stood still"}.get(first.blame, "failed first")


def _recorded(folder: Path, attempt: Attempt) -> list[Failure]:
    files = folder.glob(f"*/attempt_{attempt.number}/*/error.json")
    return [_read(path) for path in files if path.stat().st_mtime >= attempt.started]


def _read(path: Path) -> Failure:
    message: dict[str, Any] = json.loads(path.read_text())["message"]
    extra = message["extraInfo"]
    blame = Blame.LOST if lost_another(message["message"]) else Blame.FAILED
    return Failure(
        int(extra["rank"]), message["message"] + extra["where"], extra["moment"], blame, extra["py_callstack"]
    )


def _ended(end: End) -> Failure:
    """A process that left no word."""
    if end.code > 0:
        return Failure(end.rank, f"process {end.pid} ended with exit code {end.code}", end.moment)
    number = signal.Signals(-end.code)
    hint = " (often the system is out of memory)" if number == signal.SIGKILL else ""
    blame = Blame.KILLED if number in KILLS else Blame.ABORTED if number == signal.SIGABRT else Blame.FAILED
    return Failure(end.rank, f"process {end.pid} was killed by {number.name}{hint}", end.moment, blame)


def _who_was_lost(failures: Sequence[Failure], silent: Iterable[End]) -> list[Failure]:
    """Where every error says that another rank is gone: those that went in order, or that did not come in time."""
    left = [end for end in silent if end.code == 0]
    if left:
        reason = "its script ended (exit code 0) while other ranks still needed it"
        return [Failure(end.rank, reason, end.moment, Blame.LEFT) for end in left]
    if not any(waited_in_vain(failure.reason) for failure in failures):
        return []
    reason = "it did not come to a collective in time, and the launcher ended it"
    return [Failure(end.rank, reason, end.moment, Blame.FROZEN) for end in silent if end.by_launcher]
