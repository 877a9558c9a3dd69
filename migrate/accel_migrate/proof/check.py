"""One comparison of a proof, and how it came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from accel_migrate.proof.record import Event


class Result(StrEnum):
    EQUAL = "equal"  # to the bit
    WITHIN = "within"  # a tolerance that is stated
    NOT_COMPARED = "not compared"  # cannot be compared, for a reason that is stated
    DIFFERS = "differs"


class Quantity(StrEnum):
    """What is compared, as a reader calls it."""

    ENDING = "ending"  # whether the script ran at all
    SAMPLES = "samples"
    LOSSES = "losses"
    GRADIENTS = "gradients"
    RATES = "learning rates"
    PRINTED = "printed figures"
    WEIGHTS = "weights at the end"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs part: which loss, step or line it is, counted from 1, and both values."""

    number: int
    expected: str
    found: str
    before: Event | None = None  # of the original
    after: Event | None = None  # of the migrated script


@dataclass(frozen=True, slots=True)
class Check:
    quantity: Quantity
    processes: int
    result: Result
    agreed: int = 0
    total: int = 0
    largest: float = 0.0  # difference
    tolerance: float = 0.0
    note: str = ""  # why it was dropped, or what it was compared within
    difference: Difference | None = None

    @property
    def holds(self) -> bool:
        return self.result is not Result.DIFFERS


def exact(
    quantity: Quantity,
    processes: int,
    expected: Sequence[object],
    found: Sequence[object],
    before: Sequence[Event],
    after: Sequence[Event],
) -> Check:
    """Item by item equal, and as many."""
    agreed = next(
        (i for i, (a, b) in enumerate(zip(expected, found)) if not _same(a, b)), min(len(expected), len(found))
    )
    if agreed == len(expected) == len(found):
        return Check(quantity, processes, Result.EQUAL, agreed, agreed)
    difference = Difference(
        agreed + 1, at(expected, agreed), at(found, agreed), nth(before, agreed), nth(after, agreed)
    )
    return Check(quantity, processes, Result.DIFFERS, agreed, len(expected), difference=difference)


def near(
    quantity: Quantity,
    processes: int,
    expected: Sequence[float],
    found: Sequence[float],
    tolerances: Sequence[float],
    before: Sequence[Event],
    after: Sequence[Event],
    note: str = "",
) -> Check:
    """Item by item within its tolerance, and as many."""
    agreed, largest, widest = 0, 0.0, 0.0
    for a, b, tolerance in zip(expected, found, tolerances):
        gap = distance(a, b)
        if not gap <= tolerance:
            break
        agreed, largest, widest = agreed + 1, max(largest, gap), max(widest, tolerance)
    if agreed == len(expected) == len(found):
        result = Result.EQUAL if list(expected) == list(found) else Result.WITHIN
        return Check(quantity, processes, result, agreed, agreed, largest, widest, note)
    difference = Difference(
        agreed + 1, _number(expected, agreed), _number(found, agreed), nth(before, agreed), nth(after, agreed)
    )
    return Check(quantity, processes, Result.DIFFERS, agreed, len(expected), largest, widest, note, difference)


def distance(a: float, b: float) -> float:
    """How far apart two values are; two that are no numbers are alike."""
    return 0.0 if a == b or (a != a and b != b) else abs(a - b)


def _same(a: object, b: object) -> bool:
    return a == b or (a != a and b != b)


def at(items: Sequence[object], index: int) -> str:
    return _shown(items[index]) if index < len(items) else "nothing"


def nth(events: Sequence[Event], index: int) -> Event | None:
    return events[index] if index < len(events) else None


def _number(items: Sequence[float], index: int) -> str:
    return f"{items[index]:.9g}" if index < len(items) else "nothing"


def _shown(item: object) -> str:
    if isinstance(item, tuple | list):
        shown = ", ".join(_shown(each) for each in item[:6])
        return f"{shown}, ... ({len(item)})" if len(item) > 6 else shown
    return f"{item:.9g}" if isinstance(item, float) else str(item)
