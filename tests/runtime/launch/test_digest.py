"""Which failure came first, from what the ranks left and what the launcher saw."""

from __future__ import annotations

import json
import os
from pathlib import Path

from accel_runtime.launch.digest import digest, failures_of
from accel_runtime.launch.ends import Attempt, End
from accel_runtime.launch.layout import Layout

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "
CLOSED = GLOO + "Connection closed by peer [127.0.0.1]:7"


def leave(folder: Path, rank: int, message: str, moment: float, attempt: int = 0) -> Path:
    path = folder / "run" / f"attempt_{attempt}" / str(rank) / "error.json"
    path.parent.mkdir(parents=True)
    extra = {"py_callstack": f"Traceback of {rank}", "moment": moment, "where": " (t.py:1)", "rank": str(rank)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return path


def attempt_of(*ends: End, number: int = 0, started: float = 0) -> Attempt:
    return Attempt(number, started, {end.rank: end for end in ends})


def test_the_moment_decides_even_when_the_launcher_saw_only_the_consequence(tmp_path: Path) -> None:
    leave(tmp_path, 0, "RuntimeError: no more data", 10.2)
    leave(tmp_path, 1, "ValueError: bad", 10.1)
    failures = failures_of(attempt_of(End(0, 1, 1, 10.3)), tmp_path)
    assert [failure.rank for failure in failures] == [1, 0]
    assert failures[0].reason == "ValueError: bad (t.py:1)" and failures[0].trace == "Traceback of 1"


def test_a_killed_rank_is_the_cause_and_one_that_the_launcher_ended_never(tmp_path: Path) -> None:
    leave(tmp_path, 0, CLOSED, 10.2)
    ended = attempt_of(End(1, 7, -15, 12.0, by_launcher=True), End(2, 8, -9, 10.3), End(3, 9, -6, 10.3))
    failures = failures_of(ended, tmp_path)
    assert [failure.rank for failure in failures] == [2, 0, 3]
    assert failures[0].reason == "process 8 was killed by SIGKILL (often the system is out of memory)"


def test_a_lost_connection_is_never_the_cause_of_an_error_that_is_not(tmp_path: Path) -> None:
    leave(tmp_path, 0, CLOSED, 10.2)
    leave(tmp_path, 1, "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.", 10.3)
    assert [failure.rank for failure in failures_of(attempt_of(), tmp_path)] == [1, 0]


def test_a_rank_that_ended_in_order_while_it_was_needed_is_named(tmp_path: Path) -> None:
    leave(tmp_path, 0, CLOSED, 10.2)
    failures = failures_of(attempt_of(End(1, 7, 0, 10.3), End(0, 6, 1, 10.4)), tmp_path)
    first, then = digest(failures, Layout(1, 1, 2), None).splitlines()
    assert first == (
        "accel launch: rank 1 of 2 left first: its script ended (exit code 0) while other ranks still needed it"
    )
    assert then.startswith("  then rank 0: RuntimeError")


def test_a_rank_that_has_done_its_work_is_not_blamed_for_another_ones_error(tmp_path: Path) -> None:
    leave(tmp_path, 0, "OSError: disk full", 10.2)
    assert [failure.rank for failure in failures_of(attempt_of(End(1, 7, 0, 10.1)), tmp_path)] == [0]


def test_a_frozen_rank_that_the_launcher_had_to_kill_is_said_to_stand_still(tmp_path: Path) -> None:
    leave(tmp_path, 0, GLOO + "Timed out waiting 20000ms for recv operation to complete", 10.2)
    failures = failures_of(attempt_of(End(1, 7, -9, 45.0, by_launcher=True)), tmp_path)
    first, _ = digest(failures, Layout(1, 1, 2), None).splitlines()
    assert first == (
        "accel launch: rank 1 of 2 stood still: it did not come to a collective in time, and the launcher ended it"
    )


def test_where_nobody_here_is_the_cause_the_trace_is_shown(tmp_path: Path) -> None:
    leave(tmp_path, 0, CLOSED, 10.2)
    said = digest(failures_of(attempt_of(End(1, 7, -15, 12.0, by_launcher=True)), tmp_path), Layout(2, 2, 2), None)
    assert "none here failed before it; the cause is in the digest of another machine" in said
    assert said.endswith("Traceback of 0\n")


def test_only_the_attempt_that_is_asked_for_counts(tmp_path: Path) -> None:
    os.utime(leave(tmp_path / "before", 0, "OSError: of another run", 1.0), (1, 1))
    leave(tmp_path, 0, "ValueError: first attempt", 10.0)
    leave(tmp_path, 1, "ValueError: second attempt", 20.0, attempt=1)
    assert [failure.rank for failure in failures_of(attempt_of(number=1, started=5), tmp_path)] == [1]
    killed = failures_of(attempt_of(End(0, 3, -9, 30.0), number=2, started=5), tmp_path)
    assert [failure.reason for failure in killed] == [
        "process 3 was killed by SIGKILL (often the system is out of memory)"
    ]


def test_the_digest_names_the_first_and_counts_the_silent(tmp_path: Path) -> None:
    leave(tmp_path, 2, "ValueError: bad", 10.0)
    leave(tmp_path, 0, "RuntimeError: " + "very long " * 50, 11.0)
    text = digest(failures_of(attempt_of(), tmp_path), Layout(1, 1, 4), "logs")
    first, then, silent, logs = text.splitlines()
    assert first == "accel launch: rank 2 of 4 failed first: ValueError: bad (t.py:1)"
    assert then.startswith("  then rank 0: RuntimeError: very long") and len(then) < 130
    assert silent == "  2 other processes were ended by the launcher" and logs == "  logs of every rank: logs"
