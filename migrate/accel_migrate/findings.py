"""Turns what the codemod found in a program into what a report tells about the file that holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from accel_migrate.document import Document
from accel_migrate.judge import Judge
from accel_migrate.matched_lines import MatchedLines
from accel_migrate.notebook import Notebook
from accel_migrate.outcome import Decision, Finding, Outcome, shown
from accel_migrate.plan import Change, FileResult, Note, Safety, Status
from accel_migrate.source import Source
from accel_migrate.suppress import Suppression


def outcome_of(it: Document, result: FileResult, judge: Judge, current: Path) -> Outcome:
    """The outcome of one file, with the new bytes if it is migrated."""
    outcome = Outcome(
        it.source.path,
        shown(it.source.path, current),
        result.status,
        result.reason,
        findings=tuple(sorted(_findings(it, result, judge), key=lambda each: (each.cell or 0, each.line, each.column))),
        lines=len(it.source.line_starts),
    )
    if result.status is not Status.MIGRATED:
        return outcome
    removed, added = _touched(result.before, result.after)
    return replace(
        outcome,
        parts=tuple(it.parts(result.after)),
        before=it.data,
        after=it.rewritten(result.after),
        removed=removed,
        added=added,
    )


def _findings(it: Document, result: FileResult, judge: Judge) -> Iterator[Finding]:
    comments = judge.comments[it.source.path]
    used: set[Suppression] = set(judge.heeded.get(it.source.path, ()))
    for change in result.applied:
        yield _finding(it, change, change.safety, Decision.APPLIED)
    for change in result.refused:
        covering = comments.covering(change.code, change.line)
        used |= {covering} if covering else set()
        yield _finding(it, change, change.safety, judge.why_not(it.source.path, change))
    made = [change.line for change in result.applied if change.code == "AM101"]
    advice = it.advice(min(made or [change.line for change in result.applied])) if result.applied else ()
    for note in (*result.notes, *advice):
        covering = comments.covering(note.code, note.line)
        used |= {covering} if covering else set()
        if not covering and not judge.selection.ignores(note.code):
            yield _finding(it, note, Safety.NOTE, Decision.NOTE)
    for note in comments.unused(used):
        yield _finding(it, note, Safety.NOTE, Decision.NOTE)


def _finding(it: Document, found: Change | Note, safety: Safety, decision: Decision) -> Finding:
    cell, line = it.place(found.line)
    excerpt = line_of(it.source, found.line).strip()
    joined = it.line_over_cells(cell, line) if isinstance(it, Notebook) and cell is not None else None
    message = _in_cells(it, found.message)
    detail = found.detail if isinstance(found, Note) else ""
    return Finding(found.code, line, found.column, message, safety, decision, cell, excerpt, joined, detail)


def _in_cells(it: Document, message: str) -> str:
    """The message with lines of the joined program told as lines of their cells."""

    def told(match: re.Match[str]) -> str:
        places = [it.place(int(line)) for line in match[1].split(", ")]
        told = [f"cell {cell}, line {line}" for cell, line in places if cell is not None]
        return "; ".join(told) or match[0]

    return re.sub(r"\bline (\d+(?:, \d+)*)", told, message)


def line_of(source: Source, number: int) -> str:
    """The text of a line, empty when there is no such line."""
    starts = [*source.line_starts, len(source.text)]
    return source.text[starts[number - 1] : starts[number]] if 0 < number < len(starts) else ""


def _touched(before: bytes, after: bytes) -> tuple[int, int]:
    """How many lines went and how many came."""
    steps = MatchedLines(before.splitlines(), after.splitlines()).get_opcodes()
    changed = [step for step in steps if step[0] != "equal"]
    return sum(end - start for _, start, end, _, _ in changed), sum(end - start for _, _, _, start, end in changed)
