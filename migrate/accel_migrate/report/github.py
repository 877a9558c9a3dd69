"""Annotations for GitHub's workflow log, one command per line."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.plan import Status
from accel_migrate.report import Report

MOST = 10  # annotations of each level that GitHub shows for one step of a workflow; it drops the others in silence


def render(report: Report) -> str:
    """Annotations, the first of each level; what GitHub would not show is counted in the last, and told in the log."""
    found: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        for level, line in _annotations(outcome, report):
            found.setdefault(level, []).append(line)
    return "".join(f"{line}\n" for level, lines in found.items() for line in _shown(level, lines))


def _shown(level: str, lines: list[str]) -> Iterator[str]:
    if len(lines) <= MOST:
        yield from lines
        return
    yield from lines[: MOST - 1]
    rest = lines[MOST - 1 :]
    yield f"::{level} title=accel-migrate::{len(rest)} more, which GitHub would not show; they are in the log of this step"
    # Without the two colons they are lines of the log, and no annotations.
    yield from (line.removeprefix(f"::{level} ") for line in rest)


def _annotations(outcome: Outcome, report: Report) -> Iterator[tuple[str, str]]:
    """Each with its level."""
    if outcome.status is Status.FAILED:
        yield "error", _command("error", outcome.name, outcome.line, None, "accel-migrate", outcome.reason)
    for finding in outcome.findings:
        # A line in a cell is no line of the file; GitHub would mark a wrong one.
        line, column = (finding.line, finding.column) if finding.cell is None else (None, None)
        place = "" if finding.cell is None else f"cell {finding.cell}, line {finding.line}: "
        level = _level(finding, report)
        yield level, _command(level, outcome.name, line, column, finding.code, place + finding.message)


def _level(finding: Finding, report: Report) -> str:
    quiet = finding.decision is Decision.NOTE or (finding.decision is Decision.APPLIED and report.written)
    return "notice" if quiet else "warning"


def _command(level: str, file: str, line: int | None, column: int | None, title: str, message: str) -> str:
    properties = {"file": file, "line": line, "col": column, "title": title}
    listed = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items() if value is not None)
    return f"::{level} {listed}::{_escaped(message)}"


def _escaped(text: str, special: str = "") -> str:
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{special}" else each for each in text)
