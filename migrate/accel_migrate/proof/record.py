"""What the recorder wrote about one process, read back as frozen data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, and the line of the project that it came from."""

    kind: str
    file: str
    line: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loss:
    """A value that reached a backward pass."""

    bits: str  # as float.hex() writes it
    index: int  # of its event
    batches: tuple[Event, ...]  # that came since the loss before
    forms: tuple[str, ...] = ()
    random: bool = False  # random numbers were drawn between the batch and the loss

    @property
    def value(self) -> float:
        return float.fromhex(self.bits)

    @property
    def samples(self) -> tuple[Any, ...] | None:
        """The indices of the samples that it was computed from; None when some have no index."""
        chosen = [batch.facts["indices"] for batch in self.batches]
        return None if None in chosen else tuple(index for indices in chosen for index in indices)

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row for batch in self.batches for row in batch.facts["rows"])


@dataclass(frozen=True)
class Trace:
    """What one process did, in the order in which it did it."""

    rank: int
    events: tuple[Event, ...]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def has_fact(self, name: str) -> bool:
        return any(event.facts["name"] == name for event in self.of("fact"))

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(_losses(self.events))

    @cached_property
    def rates(self) -> tuple[tuple[float, ...], ...]:
        """The learning rates at each step of an optimizer."""
        return tuple(tuple(event.facts["rates"]) for event in self.of("step"))

    @cached_property
    def gradients(self) -> tuple[str, ...]:
        """The norm of all gradients at each step of an optimizer."""
        return tuple(event.facts["gradient"] for event in self.of("step"))

    def until(self, losses: int) -> Trace:
        """What it did before the loss that follows on so many."""
        if losses >= len(self.losses):
            return self
        return Trace(self.rank, (*self.events[: self.losses[losses].index], *self.of("end")))

    @property
    def parameters(self) -> str:
        """A fingerprint of all parameters at the end; empty when no optimizer stepped or the process died."""
        return "".join(event.facts["parameters"] for event in self.of("end"))

    @property
    def ran(self) -> frozenset[str]:
        """The files of the project that were run."""
        return frozenset(file for event in self.of("end") for file in event.facts.get("ran", ()))

    @property
    def was_cut(self) -> bool:
        return any(event.facts["cut"] for event in self.of("end"))


def _losses(events: Sequence[Event]) -> Iterator[Loss]:
    batches: list[Event] = []
    left: set[int] = set()
    for index, event in enumerate(events):
        if event.kind == "batch":
            batches.append(event)
        elif event.kind == "pass":
            # A pass that is over before the loss was an evaluation's, or a look ahead.
            batches = [batch for batch in batches if batch.facts["number"] != event.facts["number"]]
        elif event.kind == "left":
            left.add(event.facts["number"])
        elif event.kind == "loss":
            facts = event.facts
            # A batch of an evaluation came without gradients, and no loss was computed from it.
            used = _without_looks([batch for batch in batches if batch.facts["trains"]], left)
            yield Loss(facts["value"], index, used, tuple(facts["forms"]), facts["random"])
            batches = []


def _without_looks(batches: Sequence[Event], left: Set[int]) -> tuple[Event, ...]:
    """The batches without those of a pass that was left half-way, where another began behind it: they were looked at.

    One batch alone may be what `next(iter(loader))` was asked for, to train on.
    """
    numbers = [batch.facts["number"] for batch in batches]
    looks = {number for number in left if numbers.count(number) > 1 and number < max(numbers)}
    return tuple(batch for batch in batches if batch.facts["number"] not in looks)


def traces(folder: Path) -> list[Trace]:
    """All journals of a run, by rank; a line that a kill cut short is left out."""
    found = sorted(folder.glob("*.jsonl"), key=lambda path: [int(part) for part in path.stem.split("-")])
    return [Trace(int(path.stem.split("-")[0]), tuple(_events(path.read_text("utf-8")))) for path in found]


def _events(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        try:
            facts = json.loads(line)
        except json.JSONDecodeError:
            return
        yield Event(facts.pop("kind"), facts.pop("file"), facts.pop("line"), facts)
