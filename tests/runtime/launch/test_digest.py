"""Which failure came first, from what the ranks left and what the agent saw."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from accel_runtime.launch.digest import digest, failures_of
from accel_runtime.launch.layout import Layout


@dataclass
class Ended:
    pid: int
    exitcode: int


def leave(folder: Path, rank: int, message: str, moment: float, attempt: int = 0) -> Path:
    path = folder / "run" / f"attempt_{attempt}" / str(rank) / "error.json"
    path.parent.mkdir(parents=True)
    extra = {"py_callstack": f"Traceback of {rank}", "moment": moment, "where": " (t.py:1)", "rank": str(rank)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return path


def test_the_moment_decides_even_when_the_agent_saw_only_the_consequence(tmp_path: Path) -> None:
    leave(tmp_path, 0, "RuntimeError: connection closed", 10.2)
    leave(tmp_path, 1, "ValueError: bad", 10.1)
    failures = failures_of({0: Ended(1, 1)}, tmp_path, since=0)
    assert [failure.rank for failure in failures] == [1, 0]
    assert failures[0].reason == "ValueError: bad (t.py:1)" and failures[0].trace == "Traceback of 1"


def test_a_killed_rank_is_the_cause_and_an_ended_one_never(tmp_path: Path) -> None:
    leave(tmp_path, 0, "RuntimeError: connection closed", 10.2)
    failures = failures_of({1: Ended(7, -15), 2: Ended(8, -9), 3: Ended(9, -6)}, tmp_path, since=0)
    assert [failure.rank for failure in failures] == [2, 0, 1, 3]
    assert failures[0].reason == "process 8 was killed by SIGKILL (often the system is out of memory)"


def test_only_the_last_attempt_of_this_run_counts(tmp_path: Path) -> None:
    os.utime(leave(tmp_path / "before", 0, "OSError: of another run", 1.0, attempt=9), (1, 1))
    leave(tmp_path, 0, "ValueError: first attempt", 10.0)
    leave(tmp_path, 1, "ValueError: second attempt", 20.0, attempt=1)
    assert [failure.rank for failure in failures_of({}, tmp_path, since=5)] == [1]


def test_the_digest_names_the_first_and_counts_the_silent(tmp_path: Path) -> None:
    leave(tmp_path, 2, "ValueError: bad", 10.0)
    leave(tmp_path, 0, "RuntimeError: " + "very long " * 50, 11.0)
    text = digest(failures_of({}, tmp_path, since=0), Layout(1, 1, 4), "logs")
    first, then, silent, logs = text.splitlines()
    assert first == "accel launch: rank 2 of 4 failed first: ValueError: bad (t.py:1)"
    assert then.startswith("  then rank 0: RuntimeError: very long") and len(then) < 130
    assert silent == "  2 other processes were ended by the launcher" and logs == "  logs of every rank: logs"
