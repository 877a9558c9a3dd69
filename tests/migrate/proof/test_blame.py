"""From a difference to the change that made it."""

from __future__ import annotations

from pathlib import Path

from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.plan import Safety, Status
from accel_migrate.proof.blame import Texts, suspects
from accel_migrate.proof.check import Check, Difference, Quantity, Result
from accel_migrate.proof.record import Event, Trace

BEFORE = """\
import torch
optimizer.zero_grad()
loss = model(batch.to(device))
loss.backward()
optimizer.step()
"""
AFTER = """\
import torch
from accel_runtime import Accelerator
optimizer.zero_grad()
loss = model(batch)
accelerator.backward(loss)
optimizer.step()
"""
FINDINGS = tuple(
    Finding(code, line, 1, "", Safety.SAFE, Decision.APPLIED)
    for code, line in (("AM201", 3), ("AM301", 4), ("AM102", 1))
)
OUTCOME = Outcome(Path("train.py"), "train.py", Status.MIGRATED, findings=FINDINGS)


def events(lines: dict[str, int]) -> Trace:
    facts = {"step": {"rates": [0.1]}}
    return Trace(0, tuple(Event(kind, "train.py", line, facts.get(kind, {})) for kind, line in lines.items()))


def first(
    quantity: Quantity, original: Trace, migrated: Trace, after: str = AFTER, processes: int = 1
) -> tuple[int, str]:
    difference = Difference(1, "1", "2", original.events[-1], migrated.events[-1])
    check = Check(quantity, processes, Result.DIFFERS, difference=difference)
    suspect = suspects(check, original, [migrated], [Texts(OUTCOME, "train.py", BEFORE, after)])[0]
    return suspect.line, suspect.code


ORIGINAL = events({"zero_grad": 2, "loss": 4, "step": 5})


def test_the_change_at_the_line_that_differs_comes_first() -> None:
    assert first(Quantity.GRADIENTS, ORIGINAL, events({"zero_grad": 3, "loss": 5, "step": 6})) == (4, "AM301")


def test_a_line_that_went_without_a_rule_is_named_by_the_event_that_is_missing() -> None:
    broken = AFTER.replace("optimizer.zero_grad()\n", "")
    assert first(Quantity.GRADIENTS, ORIGINAL, events({"loss": 4, "step": 5}), broken) == (2, "")


def test_what_only_several_processes_do_otherwise_points_at_prepare() -> None:
    migrated = events({"zero_grad": 3, "loss": 5, "step": 6})
    assert first(Quantity.SAMPLES, ORIGINAL, migrated, processes=2) == (1, "AM102")
