"""The numbers that scripts print: found in their lines, and compared as far as they are printed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from accel_migrate.proof.check import Check, Difference, Quantity, Result
from accel_migrate.proof.record import Event

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.]*\w)|\b(?:nan|inf)\b")
# The time of day, dates, seconds since 1970, and what is said to have taken so long: they are no figures of a training.
TIME = re.compile(
    r"\b\d{1,4}[-/]\d{1,2}[-/]\d{1,4}\b(?:T(?=\d))?|\b\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d+)?\b|\b1[5-9]\d{8}(?:\.\d+)?\b"
    r"|\b\d+(?:\.\d+)?\s*(?:s|ms|us|sec|secs|seconds?|min|mins|minutes?|hours?|it/s|s/it|samples/s(?:ec)?)\b"
    r"|(?<=time )\d+(?:\.\d+)?|(?<=time: )\d+(?:\.\d+)?|(?<=took )\d+(?:\.\d+)?|(?<=elapsed )\d+(?:\.\d+)?"
    r"|(?<=elapsed: )\d+(?:\.\d+)?",
    re.IGNORECASE,
)
# The main process prints what it saw of the training; only evaluations are the same on any number of processes.
OF_TRAINING = re.compile(r"train", re.IGNORECASE)
COARSE = 1e-4  # relative; what sums in another order may do to a figure of a whole evaluation


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line: its words, the how-many-th with these words it is, and its numbers as they are written."""

    words: str
    turn: int
    numbers: tuple[str, ...]
    event: Event


def lines(events: Iterable[Event]) -> list[Line]:
    turns: dict[str, int] = defaultdict(int)
    found = []
    for event in events:
        text = TIME.sub("<time>", event.facts["text"])
        words = " ".join(NUMBER.sub("#", text).split())
        numbers = tuple(NUMBER.findall(text))
        if numbers:
            turns[words] += 1
            found.append(Line(words, turns[words], numbers, event))
    return found


def unsteady(original: Sequence[Event], again: Sequence[Event]) -> set[tuple[str, int]]:
    """The words of lines, each with the place of a number that two runs print otherwise: a duration, samples in a second."""
    second = {(line.words, line.turn): line.numbers for line in lines(again)}
    pairs = [(line.words, line.numbers, second.get((line.words, line.turn), ())) for line in lines(original)]
    return {(words, place) for words, *both in pairs for place, (a, b) in enumerate(zip(*both)) if a != b}


def compare(
    original: Sequence[Event],
    again: Sequence[Event],
    migrated: Sequence[Event],
    processes: int,
    exactly: bool,
    varying: Set[tuple[str, int]] = frozenset(),
) -> Check:
    """Every figure that the original repeats is printed again by the migrated script."""
    repeated = {(line.words, line.turn): line for line in lines(again)}
    found = {(line.words, line.turn): line for line in lines(migrated)}
    agreed, total = 0, 0
    for line in lines(original):
        same = repeated.get((line.words, line.turn))
        if same is None:
            continue
        wanted = [a == b for a, b in zip(line.numbers, same.numbers)]  # a duration, or the time of day, is not
        wanted = [want and (line.words, place) not in varying for place, want in enumerate(wanted)]
        if not exactly:
            wanted = [want and not OF_TRAINING.search(label) for want, label in zip(wanted, line.words.split("#"))]
        if not any(wanted):
            continue
        total += 1
        other = found.get((line.words, line.turn))
        if other is not None and all(_agree(line.numbers, other.numbers, wanted, exactly)):
            agreed += 1
            continue
        difference = Difference(
            total,
            line.event.facts["text"].strip(),
            "nothing" if other is None else other.event.facts["text"].strip(),
            line.event,
            None if other is None else other.event,
        )
        return Check(Quantity.PRINTED, processes, Result.DIFFERS, agreed, total, difference=difference)
    if not total:
        note = "the original prints none" if exactly else "no evaluation prints a figure in these steps"
        return Check(Quantity.PRINTED, processes, Result.NOT_COMPARED, note=note)
    return Check(Quantity.PRINTED, processes, Result.EQUAL if exactly else Result.WITHIN, agreed, total)


def shrunk(
    original: Sequence[Event],
    again: Sequence[Event],
    migrated: Sequence[Event],
    processes: int,
    varying: Set[tuple[str, int]] = frozenset(),
) -> Difference | None:
    """The first figure that is, in each of its lines, about so many times smaller as there are processes.

    A sum over this process's share that is divided by all of the data looks like this. A figure of the share itself is off by
    what samples differ, which does not come to the same factor time after time.
    """
    repeated = {(line.words, line.turn): line for line in lines(again)}
    found = {(line.words, line.turn): line for line in lines(migrated)}
    pairs: dict[tuple[str, int], list[tuple[Line, Line, float]]] = defaultdict(list)
    for line in lines(original):
        key = line.words, line.turn
        if key not in repeated or key not in found:
            continue
        for place, (a, b, c) in enumerate(zip(line.numbers, repeated[key].numbers, found[key].numbers)):
            if a == b and "." in a and float(a) and (line.words, place) not in varying:
                pairs[line.words, place].append((line, found[key], float(c) / float(a)))
    for same in pairs.values():
        if len(same) > 1 and all(0.75 <= ratio * processes <= 1.33 and ratio <= 0.7 for *_, ratio in same):
            line, other, _ = same[0]
            texts = line.event.facts["text"].strip(), other.event.facts["text"].strip()
            return Difference(line.turn, *texts, line.event, other.event)
    return None


def _agree(expected: Sequence[str], found: Sequence[str], wanted: Sequence[bool], exactly: bool) -> Iterator[bool]:
    for a, b, counts in zip(expected, found, wanted):
        if counts:
            close = abs(float(a) - float(b)) <= _unit(a) + COARSE * abs(float(a))
            yield a == b or (close and not exactly)


def _unit(number: str) -> float:
    """One in the last printed digit; a count is exact."""
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.0 if not digits and not exponent else 1.01 * 10.0 ** (int(exponent or 0) - digits)
