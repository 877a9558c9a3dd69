"""What a proof came to, in one sentence and in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from accel_migrate.proof.blame import Suspect
from accel_migrate.proof.check import Check, Quantity, Result
from accel_migrate.proof.runs import StandIn
from accel_migrate.proof.step.conclude import StepAnswer, StepResult


class Outcome(StrEnum):
    PROVEN = "proven"
    DIFFERS = "differs"
    NOT_RUN = "not run"

    @property
    def code(self) -> int:
        """Of the command."""
        return list(Outcome).index(self)


@dataclass(frozen=True, slots=True)
class Curve:
    """The losses of one process of one run."""

    name: str  # "original", "migrated", "rank 0"
    processes: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str  # of the script
    outcome: Outcome
    processes: int
    checks: tuple[Check, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    curves: tuple[Curve, ...] = ()
    problem: str = ""  # why it could not be run
    written: bool = False
    broken: Check | None = None  # the check that failed first
    stand_ins: tuple[StandIn, ...] = ()
    not_run: tuple[str, ...] = ()  # migrated files that no run came by
    step: StepAnswer | None = None  # about every number of processes

    def check(self, quantity: Quantity, processes: int) -> Check | None:
        return next((c for c in self.checks if (c.quantity, c.processes) == (quantity, processes)), None)

    @property
    def not_compared(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.result is Result.NOT_COMPARED)


def unproven(verdict: Verdict) -> str:
    """The migrated files that the proof does not speak about; empty when it speaks about all."""
    return f"Not run, so nothing is proven about them: {', '.join(verdict.not_run)}" if verdict.not_run else ""


def answer(verdict: Verdict) -> str:
    """The whole proof in one line."""
    if verdict.outcome is Outcome.NOT_RUN:
        return f"{verdict.name}: not proven, {verdict.problem}"
    if verdict.broken is not None:
        return f"{verdict.name}: differs, {_difference(verdict.broken)}"
    written = "migrated and written" if verdict.written else "migrated"
    return f"{verdict.name}: {written}, {'; '.join(_parts(verdict))}"


def _difference(check: Check) -> str:
    where = "" if check.processes == 1 else f" on {check.processes} processes"
    difference = check.difference
    assert difference is not None
    if check.quantity is Quantity.ENDING:
        return f"{difference.found}{where}"
    if check.quantity is Quantity.WEIGHTS:
        return f"the weights at the end are {_told(check)}{where}"
    return f"{item(check)}{where} is {difference.found} and was {difference.expected}"


def item(check: Check) -> str:
    """What differs first, and which one it is."""
    assert check.difference is not None
    number = check.difference.number
    return {
        Quantity.LOSSES: f"loss {number}",
        Quantity.GRADIENTS: f"the gradient at step {number}",
        Quantity.RATES: f"the learning rate at step {number}",
        Quantity.SAMPLES: f"the samples of loss {number}",
        Quantity.PRINTED: f"printed line {number}",
    }.get(check.quantity, str(check.quantity))


def _parts(verdict: Verdict) -> Iterator[str]:
    losses = verdict.check(Quantity.LOSSES, 1)
    assert losses is not None
    if losses.result is Result.EQUAL:
        yield f"{losses.agreed} of {losses.total} losses equal{on_stand_ins(verdict)}"
    else:
        spread = f"the script's own spread of {losses.tolerance:.2g}"
        yield f"{losses.agreed} of {losses.total} losses within {spread}{on_stand_ins(verdict)}"
    if verdict.processes > 1:
        yield _on_many(verdict)
    if verdict.step is not None and verdict.step.result is not StepResult.UNKNOWN:
        yield f"a step is {verdict.step.told}"


def on_stand_ins(verdict: Verdict) -> str:
    """What the runs had in the place of the script's own, so that nobody takes the answer for a proof on that."""
    told = ", ".join(f"{each.what} {each.how}" for each in verdict.stand_ins)
    return f" on stand-ins ({told})" if told else ""


def _on_many(verdict: Verdict) -> str:
    many = verdict.check(Quantity.LOSSES, verdict.processes)
    start = f"on {verdict.processes} processes"
    if many is None:
        return f"{start} not compared"
    if many.result is not Result.NOT_COMPARED:
        return f"{start} within {many.largest:.1g}"
    first = f"the first {many.agreed} within {many.largest:.1g}, the rest" if many.agreed else "losses"
    return f"{start} {first} not compared: {many.note}"


def table(verdict: Verdict) -> Iterator[tuple[str, str, str, str]]:
    """Rows of processes, quantity, result and what there is to say."""
    for check in verdict.checks:
        processes = f"{check.processes} process{'es' if check.processes > 1 else ''}"
        yield processes, str(check.quantity), str(check.result), _told(check)
    if verdict.step is not None:
        told = verdict.step.why or "the gradients of the first steps, by the laws of their operators"
        yield "N processes", "training step", str(verdict.step.result), told


def _told(check: Check) -> str:
    if check.result is Result.NOT_COMPARED:
        before = f"{check.agreed} of {check.total} compared; " if check.agreed else ""
        return f"{before}{check.note}"
    if check.quantity is Quantity.ENDING:
        return check.note or "runs to the end"
    if check.quantity is Quantity.WEIGHTS:
        if not check.holds:
            return "not the same on every process" if check.processes > 1 else "other ones"
        return "the same on every process" if check.processes > 1 else "the same to the bit"
    measured = check.tolerance and check.result is not Result.EQUAL
    within = f", largest difference {check.largest:.2g} of {check.tolerance:.2g} allowed" if measured else ""
    note = f"; {check.note}" if check.note else ""
    return f"{check.agreed} of {check.total}{within}{note}"
