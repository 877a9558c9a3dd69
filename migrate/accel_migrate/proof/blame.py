"""From where two runs part to the changes that could have done it, the most likely first.

The fault lies in a change between the last thing that both runs did alike and the first that they did not. So places
weigh more than kinds: a changed line at which an event came, went or differed; then what a rule of that kind does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from accel_migrate.outcome import Decision, Outcome
from accel_migrate.proof.check import Check, Quantity
from accel_migrate.proof.record import Event, Trace
from accel_migrate.report.side_by_side import Row, rows

PREPARE = "AM102"
MOST = 5  # suspects that are named
# What a rule of these codes may do to a quantity, the likeliest first.
KINDS: Mapping[Quantity, tuple[str, ...]] = {
    Quantity.SAMPLES: ("AM102", "AM703", "AM402", "AM706", "AM103"),
    Quantity.LOSSES: ("AM303", "AM102", "AM201", "AM202", "AM205", "AM105", "AM301", "AM502", "AM103"),
    Quantity.GRADIENTS: ("AM301", "AM302", "AM304", "AM306", "AM102"),
    Quantity.RATES: ("AM102", "AM304", "AM801"),
    Quantity.PRINTED: ("AM401", "AM402", "AM605", "AM705", "AM606", "AM601"),
    Quantity.WEIGHTS: ("AM102", "AM702", "AM302", "AM304", "AM301"),
    Quantity.ENDING: ("AM102", "AM103", "AM101", "AM104"),
}
# What of an event must be the same on both sides, beside that it happened.
TELLING = {
    "seed": ("value",),
    "optimizer": ("rates",),
    "loader": ("batch_size", "sampler"),
    "mode": ("training",),
    "step": ("rates",),
}
UNTOLD = ("printed", "fact", "end")
FARTHEST = 400  # events that are looked back over


@dataclass(frozen=True, slots=True)
class Suspect:
    """A change that could explain a difference. `code` is empty for one that no rule speaks about."""

    file: str
    line: int  # of the file before the rewrite
    code: str
    message: str
    score: float


@dataclass(frozen=True, slots=True)
class Texts:
    """A file of the project, as its program was and is."""

    outcome: Outcome
    file: str  # as the recorder names it
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Clue:
    """An event that one side had alone, or that came out otherwise; `weight` is how much that tells."""

    event: Event
    weight: float


STRAY, OUTCOME, FIGURE = 6.0, 3.0, 1.0  # weights; where a figure is printed says little about how it came about
UNTOLD_CHANGE, UNSEEN_CHANGE = 4.0, 2.0  # a change without a rule; a rule whose change the text does not show


def suspects(check: Check, original: Trace, migrated: Sequence[Trace], texts: Sequence[Texts]) -> list[Suspect]:
    """The changes that could explain why a check does not hold. `migrated` has the main process first."""
    before, after = next((strays for trace in migrated if any(strays := _strays(check, original, trace))), ([], []))
    difference = check.difference
    if difference is not None:
        weight = FIGURE if check.quantity is Quantity.PRINTED else OUTCOME
        before = [*before, *(Clue(event, weight) for event in [difference.before] if event)]
        after = [*after, *(Clue(event, weight) for event in [difference.after] if event)]
    found = [suspect for text in texts for suspect in _in_file(text, check, before, after)]
    return sorted(found, key=lambda suspect: -suspect.score)[:MOST]


def _strays(check: Check, original: Trace, migrated: Trace) -> tuple[list[Clue], list[Clue]]:
    """The first events, up to the difference, that only one side had or that are not alike."""
    difference = check.difference
    known = _until(original, difference.before if difference else None)
    seen = _until(migrated, difference.after if difference else None)
    matcher = SequenceMatcher(None, [_sign(e) for e in known], [_sign(e) for e in seen], autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        # What one side did after the other had stopped says nothing.
        if kind != "equal" and (end < len(known) or new_end < len(seen) or kind == "replace"):
            sides = known[start:end][:2], seen[new_start:new_end][:2]
            return [Clue(event, STRAY) for event in sides[0]], [Clue(event, STRAY) for event in sides[1]]
    return [], []


def _until(trace: Trace, last: Event | None) -> list[Event]:
    events = trace.events
    end = next((index for index, event in enumerate(events) if event is last), len(events) - 1)
    return [event for event in events[: end + 1] if event.kind not in UNTOLD][:FARTHEST]


def _sign(event: Event) -> tuple[object, ...]:
    return event.kind, *(str(event.facts.get(name)) for name in TELLING.get(event.kind, ()))


def _in_file(text: Texts, check: Check, before: Sequence[Clue], after: Sequence[Clue]) -> Iterator[Suspect]:
    """Each change that a rule speaks about, and each changed line that none does."""
    clues = (
        [clue for clue in before if clue.event.file == text.file],
        [clue for clue in after if clue.event.file == text.file],
    )
    every = list(rows(text.before.splitlines(), text.after.splitlines()))
    lines = _lines_of_changes(text, every)
    for finding in text.outcome.decided(Decision.APPLIED):
        line = finding.joined_line or finding.line
        own = [row for row, named in lines if named == line]
        near = max((_nearness(row, line, clues) for row in own), default=UNSEEN_CHANGE)
        score = near + _kind(finding.code, check)
        yield Suspect(text.outcome.name, finding.line, finding.code, finding.message, score)
    spoken = {finding.joined_line or finding.line for finding in text.outcome.decided(Decision.APPLIED)}
    for row, line in lines:
        if line not in spoken and not _trains_nothing(text, row):
            score = UNTOLD_CHANGE + _nearness(row, line, clues)
            yield Suspect(text.outcome.name, line, "", _shown(text, row), score)


def _lines_of_changes(text: Texts, every: Sequence[Row]) -> list[tuple[Row, int]]:
    """Every changed row with the line of the original that it belongs to: its statement's first, or its neighbour's."""
    firsts = _first_lines(text.before)
    found, above = [], 1
    for index, row in enumerate(every):
        if row.changed:
            below = next((each.left for each in every[index:] if each.left is not None), above)
            line = row.left if row.left is not None else _neighbour(text, row, above, below)
            found.append((row, firsts.get(line, line)))
        above = row.left or above
    return found


def _neighbour(text: Texts, row: Row, above: int, below: int) -> int:
    """Of a new line: the line that it repeats, if one beside it is the same, or the line above."""
    assert row.right is not None
    new, old = text.after.splitlines()[row.right - 1].strip(), text.before.splitlines()
    return below if below <= len(old) and old[below - 1].strip() == new else above


def _first_lines(program: str) -> dict[int, int]:
    """The first line of the simple statement that a line belongs to."""
    simple = [s for s in ast.walk(ast.parse(program)) if isinstance(s, ast.stmt) and not hasattr(s, "body")]
    return {line: each.lineno for each in simple for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)}


def _trains_nothing(text: Texts, row: Row) -> bool:
    """An import, a comment or an empty line."""
    sides = ((text.before, row.left), (text.after, row.right))
    lines = [whole.splitlines()[number - 1].strip() for whole, number in sides if number is not None]
    return all(not line or line.startswith(("import ", "from ", "#")) for line in lines)


def _nearness(row: Row, line: int, clues: tuple[Sequence[Clue], Sequence[Clue]]) -> float:
    """The weight of the clues from its lines, less the farther they are."""
    old = [clue.weight / (1 + _gap(clue.event.line, line)) for clue in clues[0]]
    new = [clue.weight / (1 + _gap(clue.event.line, row.right)) for clue in clues[1] if row.right is not None]
    return max([*old, *new], default=0.0)


def _gap(event: int, line: int) -> int:
    """How many lines lie between; what comes before an event may explain it, what comes after hardly."""
    return event - line if event >= line else 2 * (line - event)


def _kind(code: str, check: Check) -> float:
    codes = KINDS[check.quantity]
    if check.processes > 1 and code == PREPARE and code in codes:
        return 5.0  # it is right on one process, and this is what makes several of them one training
    return 3.0 - 2.0 * codes.index(code) / len(codes) if code in codes else 0.0


def _shown(text: Texts, row: Row) -> str:
    if row.right is not None:
        return f"no rule speaks about this line: {text.after.splitlines()[row.right - 1].strip()}"
    assert row.left is not None
    return f"no rule speaks about the line that is gone: {text.before.splitlines()[row.left - 1].strip()}"
