"""What each kind of proof shows and does not show: the same words on the page of a report and in docs/verify.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.proof.verdict import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Meaning:
    kind: str
    shows: str
    leaves_open: str
    remedy: str


ONE = Meaning(
    "one process",
    "the rewrite changes nothing: the same samples, losses, gradients and weights",
    "later losses, and other arguments",
    "ask for more losses with --steps, and give your own arguments after --",
)
MANY = Meaning(
    "several processes",
    "together they train as the original did: each batch is sharded, and all end with the same weights",
    "what is not compared, and training with a whole batch for each process",
    "read why it is not compared; launch with --split-batches to train as was proven",
)
STEP = Meaning(
    "a step, for every N",
    "whether the first steps have the gradients of the whole batch on any number of processes",
    "what optimizers, schedulers and evaluations do, and other ways through the script",
    "where it is unknown, compare losses with --processes 4",
)
STAND_INS = Meaning(
    "on stand-ins",
    "all of this for made-up data and weights",
    "what depends on the content of your data",
    "run --verify again without --stand-ins where the data is",
)
OBSERVED = Meaning(
    "observed facts",
    "what variables held in one run, where the code does not show it",
    "what they hold with other arguments",
    "observe again with those arguments, and keep what is proven only",
)
ALL = (ONE, MANY, STEP, STAND_INS, OBSERVED)


def meanings(verdict: Verdict) -> Iterator[Meaning]:
    """Of the kinds of proof that a verdict rests on."""
    if verdict.outcome is Outcome.PROVEN:
        yield ONE
        if any(check.processes > 1 for check in verdict.checks):
            yield MANY
        if verdict.step is not None:
            yield STEP
        if verdict.stand_ins:
            yield STAND_INS
