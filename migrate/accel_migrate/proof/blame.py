"""From where two runs part to the changes that could have done it, the most likely first.

The fault lies in a change between the last thing that both runs did alike and the first that they did not. So places
weigh more than kinds: a changed line at which an event came, went or differed; then what a rule of that kind does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.proof.check import Check, Quantity
from accel_migrate.proof.record import Event, Trace

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
class Hunk:
    """Lines `before` of the original, from 1 and without the last, became lines `after`; either may be none."""

    before: range
    after: range


@dataclass(frozen=True, slots=True)
class Texts:
    """A file of the project, as its program was and is."""

    outcome: Outcome
    file: str  # as the recorder names it
    before: str
    after: str

    def hunks(self) -> list[Hunk]:
        pairs = SequenceMatcher(None, self.before.splitlines(), self.after.splitlines(), autojunk=False).get_opcodes()
        return [Hunk(range(a + 1, b + 1), range(c + 1, d + 1)) for kind, a, b, c, d in pairs if kind != "equal"]


def suspects(check: Check, original: Trace, migrated: Trace, texts: Sequence[Texts]) -> list[Suspect]:
    """The changes that could explain why a check does not hold."""
    difference = check.difference
    before, after = _strays(check, original, migrated)
    if difference is not None:
        before += [(event, 3.0) for event in [difference.before] if event]
        after += [(event, 3.0) for event in [difference.after] if event]
    found = [suspect for text in texts for suspect in _in_file(text, check.quantity, before, after)]
    return sorted(found, key=lambda suspect: -suspect.score)[:MOST]


Weighed = list[tuple[Event, float]]


def _strays(check: Check, original: Trace, migrated: Trace) -> tuple[Weighed, Weighed]:
    """The first events that only one side had, or that are not alike, up to the difference."""
    difference = check.difference
    ends = [
        next((i for i, each in enumerate(trace.events) if each is event), len(trace.events))
        for trace, event in (
            (original, difference.before if difference else None),
            (migrated, difference.after if difference else None),
        )
    ]
    known, seen = (
        [e for e in trace.events[: end + 1] if e.kind not in UNTOLD] for trace, end in zip((original, migrated), ends)
    )
    known, seen = known[:FARTHEST], seen[:FARTHEST]
    matcher = SequenceMatcher(None, [_sign(e) for e in known], [_sign(e) for e in seen], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal" and b < len(known) + 1:
            return [(event, 6.0) for event in known[a:b][:2]], [(event, 6.0) for event in seen[c:d][:2]]
    return [], []


def _sign(event: Event) -> tuple[object, ...]:
    return event.kind, *(str(event.facts.get(name)) for name in TELLING.get(event.kind, ()))


def _in_file(text: Texts, quantity: Quantity, before: Weighed, after: Weighed) -> Iterator[Suspect]:
    hunks = text.hunks()
    findings = text.outcome.decided(Decision.APPLIED)
    here_before = [(event.line, weight) for event, weight in before if event.file == text.file]
    here_after = [(event.line, weight) for event, weight in after if event.file == text.file]
    explained: set[Hunk] = set()
    for finding in findings:
        own = [hunk for hunk in hunks if _speaks_of(finding, hunk)]
        explained.update(own)
        near = max((_nearness(hunk, here_before, here_after) for hunk in own), default=0.0)
        untouched = 2.0 if not own else 0.0  # it is said to be done, and the text does not show it
        score = near + untouched + _kind(finding.code, quantity)
        yield Suspect(text.outcome.name, finding.line, finding.code, finding.message, score)
    for hunk in hunks:
        if hunk not in explained:
            line = hunk.before.start if hunk.before else max(hunk.before.start - 1, 1)
            score = 4.0 + _nearness(hunk, here_before, here_after)
            yield Suspect(text.outcome.name, line, "", _shown(text, hunk), score)


def _speaks_of(finding: Finding, hunk: Hunk) -> bool:
    line = finding.joined_line or finding.line
    return line in hunk.before or (not hunk.before and line in (hunk.before.start, hunk.before.start - 1))


def _nearness(hunk: Hunk, before: Sequence[tuple[int, float]], after: Sequence[tuple[int, float]]) -> float:
    """The weight of the events that came from its lines, less the farther they are."""
    gaps = [(_gap(line, hunk.before), weight) for line, weight in before]
    gaps += [(_gap(line, hunk.after), weight) for line, weight in after]
    return max((weight / (1 + gap) for gap, weight in gaps), default=0.0)


def _gap(line: int, lines: range) -> int:
    """How many lines lie between; what comes before an event may explain it, what comes after hardly."""
    if line in lines:
        return 0
    return line - lines.stop + 1 if line >= lines.stop else 2 * (lines.start - line)


def _kind(code: str, quantity: Quantity) -> float:
    codes = KINDS[quantity]
    return 3.0 - 2.0 * codes.index(code) / len(codes) if code in codes else 0.0


def _shown(text: Texts, hunk: Hunk) -> str:
    lines = text.after.splitlines()[hunk.after.start - 1 : hunk.after.stop - 1]
    gone = text.before.splitlines()[hunk.before.start - 1 : hunk.before.stop - 1]
    if lines:
        return f"no rule speaks about this line: {lines[0].strip()}"
    return f"no rule speaks about the line that is gone: {gone[0].strip()}"
