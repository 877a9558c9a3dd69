"""A verdict for a person: the answer, what was compared, and on a difference what could explain it."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.proof.blame import Suspect
from accel_migrate.proof.check import Check
from accel_migrate.proof.verdict import Outcome, Verdict, answer, item, on_stand_ins, table, unproven

COLORS = {Outcome.PROVEN: "32", Outcome.DIFFERS: "31", Outcome.NOT_RUN: "33"}


def render(verdict: Verdict, color: bool = False) -> str:
    return "".join(f"{line}\n" for line in _lines(verdict, color))


def _lines(verdict: Verdict, color: bool) -> Iterator[str]:
    first = answer(verdict)
    yield f"\x1b[{COLORS[verdict.outcome]}m{first}\x1b[0m" if color else first
    if verdict.stand_ins and verdict.outcome is not Outcome.PROVEN:
        yield f"Run{on_stand_ins(verdict)}"
    if verdict.not_run:
        yield unproven(verdict)
    rows = list(table(verdict))
    if rows:
        yield ""
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for *columns, told in rows:
            yield "  " + "  ".join(text.ljust(width) for text, width in zip(columns, widths)) + f"  {told}"
    if verdict.broken is not None:
        yield ""
        yield from _first_difference(verdict.broken)
        yield from _suspects(verdict.suspects)


def _first_difference(check: Check) -> Iterator[str]:
    difference = check.difference
    assert difference is not None
    yield f"First difference: {item(check)}"
    for name, value, event in (
        ("original", difference.expected, difference.before),
        ("migrated", difference.found, difference.after),
    ):
        place = f"   {event.file}:{event.line}" if event is not None else ""
        yield f"  {name}  {value}{place}"


def _suspects(suspects: tuple[Suspect, ...]) -> Iterator[str]:
    if suspects:
        yield ""
        yield "Changes that could explain it, the most likely first:"
    for suspect in suspects:
        yield f"  {suspect.file}:{suspect.line}: {suspect.code or 'change'} {suspect.message}"
