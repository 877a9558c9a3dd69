"""The proof itself: the original twice, the migrated script on one process and on several, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from accel_migrate.proof import failures
from accel_migrate.proof.blame import Texts, suspects
from accel_migrate.proof.check import Check, Difference, Quantity, Result
from accel_migrate.proof.compare import figures_on_many, on_many, on_one, weights_on_many
from accel_migrate.proof.figures import unsteady
from accel_migrate.proof.record import Event, Trace
from accel_migrate.proof.runs import Run, Runner, StandIn, Target
from accel_migrate.proof.step.conclude import StepAnswer, conclude, shares
from accel_migrate.proof.step.graph import Steps
from accel_migrate.proof.verdict import Curve, Outcome, Verdict

Tell = Callable[[str], None]
SLOWER = 4  # times as long as the original: what has not ended by then stands still
# What a script says that counts on as many samples as its data really has.
TOO_SHORT = re.compile(r"Sum of input lengths|out of (?:range|bounds)|reached no backward pass")
CANNOT_SPLIT = re.compile(r"split_batches needs ([^\n]*)")
OF_A_SIZE = re.compile(r"\b(shape|size|batch|dimension|length|numel)", re.I)


@dataclass(frozen=True)
class Subject:
    """What is to be proven: how it is run, and its files before and after. Notebooks run as plain programs."""

    name: str
    target: Target
    texts: tuple[Texts, ...]
    before: dict[Path, bytes]  # that the original needs beside what is on disk
    after: dict[Path, bytes]


class CannotRun(Exception):
    """There is nothing to compare; the message says why."""


@dataclass
class Proof:
    """One script on its way to a verdict."""

    subject: Subject
    runner: Runner
    processes: int
    tell: Tell
    ranks: Sequence[Trace] = ()  # of the run on several processes
    stand_ins: dict[StandIn, None] = field(default_factory=dict)  # in the order in which they were met
    traced: tuple[Steps, ...] = ()  # of the original
    step: StepAnswer | None = None
    seconds: float = 0.0  # that the original took

    def verdict(self) -> Verdict:
        name, processes = self.subject.name, self.processes
        try:
            original, again = self._first(), self._original("original, again", trace=True)
        except CannotRun as problem:
            return Verdict(name, Outcome.NOT_RUN, processes, problem=str(problem), stand_ins=tuple(self.stand_ins))
        migrated = [text.file for text in self.subject.texts]
        if migrated and original.ran and original.ran.isdisjoint(migrated):
            untouched = f"none of the migrated files is run by {name}, and what it runs was left as it was"
            return Verdict(name, Outcome.NOT_RUN, processes, problem=untouched, stand_ins=tuple(self.stand_ins))
        try:
            checks, curves, blamed = self._on_one(original, again)
        except CannotRun as problem:
            return Verdict(name, Outcome.NOT_RUN, processes, problem=str(problem), stand_ins=tuple(self.stand_ins))
        if processes > 1 and all(check.holds for check in checks):
            more, ranks = self._on_many(original, again)
            checks, curves = [*checks, *more], [*curves, *ranks]
            blamed = self.ranks or blamed
        broken = _earliest(checks, original)
        return Verdict(
            name,
            Outcome.DIFFERS if broken else Outcome.PROVEN,
            processes,
            tuple(checks),
            tuple(suspects(broken, original, blamed, self.subject.texts)) if broken else (),
            tuple(curves),
            broken=broken,
            stand_ins=tuple(self.stand_ins),
            step=self.step,
            not_run=tuple(text.file for text in self.subject.texts if original.ran and text.file not in original.ran),
        )

    def _first(self) -> Trace:
        """The original; stand-ins are short, unless it counts on their true lengths."""
        try:
            return self._original("original")
        except CannotRun as problem:
            if self.runner.stand_ins != "small" or not TOO_SHORT.search(str(problem)):
                raise
        self.runner = replace(self.runner, stand_ins="true lengths")
        return self._original("original, on data of its true length")

    def _run(self, name: str, migrated: bool = True, **how: object) -> Run:
        files = self.subject.after if migrated else self.subject.before
        self.tell(f"running the {name}")
        folder = re.sub(r"\W+", "-", name)
        run = self.runner.run(folder, self.subject.target, files, **how)  # type: ignore[arg-type]
        self.stand_ins |= dict.fromkeys(run.stand_ins)
        return run

    def _original(self, name: str, **how: object) -> Trace:
        run = self._run(name, migrated=False, **how)
        self.traced = run.steps or self.traced
        self.seconds = max(self.seconds, run.ended.seconds)
        if run.failed:
            raise CannotRun(f"the original {failures.sentence(run)}")
        trained = [trace for trace in run.traces if trace.losses]
        if not trained:
            raise CannotRun("the original reached no backward pass")
        if len(trained) > 1:
            raise CannotRun(f"the original starts {len(trained)} processes of its own; run it with one")
        return trained[0]

    def _on_one(self, original: Trace, again: Trace) -> tuple[list[Check], list[Curve], Sequence[Trace]]:
        run = self._run("migrated script")
        migrated = next(iter(run.traces), Trace(0, ()))
        curves = [Curve("original", 1, _values(original)), Curve("migrated", 1, _values(migrated))]
        if self._is_only_slow(run):
            raise CannotRun(self._slow(run))
        if run.failed:
            return [_failure(run, 1, "migrated-script")], curves, [migrated]
        return on_one(original, again, migrated), curves, [migrated]

    def _on_many(self, original: Trace, again: Trace) -> tuple[list[Check], list[Curve]]:
        count = self.processes
        on_gpu, gpus = _gpus(original)
        if on_gpu and gpus < count:
            why = f"the original trained on a GPU, and there are {gpus} for {count} processes"
            return [Check(Quantity.LOSSES, count, Result.NOT_COMPARED, note=why)], []
        name = f"migrated script on {count} processes"
        run = self._run(name, processes=count, on_cpu=not on_gpu, trace=True)
        unshared = _unshared(run)
        if unshared:
            whole = self._run(f"{name}, a batch for each", processes=count, on_cpu=not on_gpu, split=False, trace=True)
            run = run if whole.failed and not CANNOT_SPLIT.search(run.ended.errors) else whole
        self.ranks = ranks = tuple(trace for trace in run.traces if trace.losses)
        curves = [Curve(f"rank {trace.rank}", count, _values(trace)) for trace in ranks]
        if self._is_only_slow(run):
            return [Check(Quantity.LOSSES, count, Result.NOT_COMPARED, note=self._slow(run))], curves
        if run.failed:
            return [_failure(run, count, re.sub(r"\W+", "-", name))], curves
        if len(ranks) != count:
            found = f"{len(ranks)} of {count} processes reached a backward pass"
            return [_ending(count, Difference(1, "all", found))], curves
        self.step = self._every_number(run.steps)
        if unshared:
            return [
                Check(Quantity.ENDING, count, Result.EQUAL),
                Check(Quantity.LOSSES, count, Result.NOT_COMPARED, note=unshared),
                weights_on_many(ranks),
            ], curves
        return self._compared(original, again, ranks, on_gpu), curves

    def _is_only_slow(self, run: Run) -> bool:
        """Whether a run was out of time that is short for the original too: it need not have stood still."""
        return run.ended.code is None and run.seconds_allowed < SLOWER * self.seconds

    def _slow(self, run: Run) -> str:
        return f"the migrated script {failures.sentence(run)}; the original took {self.seconds:.0f} s"

    def _every_number(self, ranks: Sequence[Steps]) -> StepAnswer:
        """What a step shows about every number of processes, by two numbers at least that share its batch."""
        pretended: list[Steps] = []
        wanted, candidates = shares(self.traced, ranks)
        for count in candidates:
            if len(pretended) < wanted:
                run = self._run(f"first steps as one of {count} processes", pretended=count, trace=True)
                pretended += run.steps if not run.failed else ()
        return conclude(self.traced[0] if len(self.traced) == 1 else None, ranks, pretended)

    def _compared(self, original: Trace, again: Trace, ranks: Sequence[Trace], on_gpu: bool) -> list[Check]:
        checks = [self._unsharded(check, original, ranks) for check in on_many(original, again, ranks, self._nudged)]
        count = len(ranks)
        losses = next((check for check in checks if check.quantity is Quantity.LOSSES), None)
        if losses is None:
            why = "the original does not repeat itself"
            return [*checks, Check(Quantity.LOSSES, count, Result.NOT_COMPARED, note=why)]
        if losses.result is not Result.NOT_COMPARED:
            return [*checks, figures_on_many(original, again, ranks[0], count)]
        return [*checks, *self._held_still(original, again, on_gpu)]

    def _nudged(self) -> Trace | None:
        """The original with its weights off by rounding; nothing where it does not run so."""
        try:
            return self._original("original with its weights off by rounding", nudged=True)
        except CannotRun:
            return None

    def _unsharded(self, check: Check, original: Trace, ranks: Sequence[Trace]) -> Check:
        """A loader that an object of the script keeps to itself is not prepared, and the codemod says so."""
        says = any(finding.code == "AM805" for text in self.subject.texts for finding in text.outcome.findings)
        if check.quantity is not Quantity.SAMPLES or check.holds or not says:
            return check
        if not all(_samples(rank) == _samples(original) for rank in ranks):
            return check
        why = "no loader is prepared, and every process trains on all of the data (AM805)"
        return replace(check, result=Result.NOT_COMPARED, note=why, difference=None)

    def _held_still(self, original: Trace, again: Trace, on_gpu: bool) -> list[Check]:
        """What evaluations print does not hang on training when no weight moves."""
        if not any(event.facts["evaluation"] for event in original.of("printed")):
            return []
        try:
            expected = self._original("original with its weights held still", still=True)
        except CannotRun as problem:
            why = f"with its weights held still, {problem}"
            return [Check(Quantity.PRINTED, self.processes, Result.NOT_COMPARED, note=why)]
        name = f"migrated script on {self.processes} processes, weights held still"
        run = self._run(name, still=True, processes=self.processes, on_cpu=not on_gpu)
        if run.failed or not run.traces:
            return [_failure(run, self.processes, re.sub(r"\W+", "-", name))]
        varying = unsteady(original.of("printed"), again.of("printed"))
        check = figures_on_many(expected, expected, run.traces[0], self.processes, varying)
        if not check.holds and original.has_fact("batch norm"):
            why = "batch normalisation gathers its statistics from the samples of each process (AM804)"
            return [replace(check, result=Result.NOT_COMPARED, note=why, difference=None)]
        return [replace(check, note=check.note or "of evaluations, with the weights held still")]


def _unshared(run: Run) -> str:
    """Why the processes cannot split each batch; empty when they can, or failed for another reason."""
    if not run.failed:
        return ""
    uneven = CANNOT_SPLIT.search(run.ended.errors)
    if uneven:
        return f"sharding each batch needs {uneven[1]}"
    problem = failures.sentence(run)
    if run.ended.code is None or not OF_A_SIZE.search(problem):
        return ""
    return f"the script counts on whole batches; with each of them sharded it {problem}"


def _samples(trace: Trace) -> list[object]:
    return [loss.samples for loss in trace.losses]


def _values(trace: Trace) -> tuple[float, ...]:
    return tuple(loss.value for loss in trace.losses)


def _gpus(trace: Trace) -> tuple[bool, int]:
    """Whether it trained on a GPU, and how many there are."""
    first = trace.of("loss")[0].facts
    return first["device"] == "cuda", first["gpus"]


def _failure(run: Run, processes: int, folder: str) -> Check:
    place = failures.place(run, folder)
    event = Event("failure", *place) if place else None
    return _ending(processes, Difference(1, "runs", f"the migrated script {failures.sentence(run)}", None, event))


def _ending(processes: int, difference: Difference) -> Check:
    return Check(Quantity.ENDING, processes, Result.DIFFERS, difference=difference)


def _earliest(checks: Sequence[Check], original: Trace) -> Check | None:
    """The check that broke first in the course of the training: what comes later follows from it."""

    def moment(check: Check) -> int:
        event = check.difference.before if check.difference else None
        return next((index for index, each in enumerate(original.events) if each is event), len(original.events))

    return min((check for check in checks if not check.holds), key=moment, default=None)
