"""Annotations for GitHub's workflow log, one command per line."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.plan import Status
from accel_migrate.report import Report


def render(report: Report) -> str:
    return "".join(f"{line}\n" for outcome in report.outcomes for line in _annotations(outcome, report))


def _annotations(outcome: Outcome, report: Report) -> Iterator[str]:
    if outcome.status is Status.FAILED:
        yield _command("error", outcome.name, outcome.line, None, "accel-migrate", outcome.reason)
    for finding in outcome.findings:
        # A line in a cell is no line of the file; GitHub would mark a wrong one.
        line, column = (finding.line, finding.column) if finding.cell is None else (None, None)
        place = "" if finding.cell is None else f"cell {finding.cell}, line {finding.line}: "
        yield _command(_level(finding, report), outcome.name, line, column, finding.code, place + finding.message)


def _level(finding: Finding, report: Report) -> str:
    quiet = finding.decision is Decision.NOTE or (finding.decision is Decision.APPLIED and report.written)
    return "notice" if quiet else "warning"


def _command(level: str, file: str, line: int | None, column: int | None, title: str, message: str) -> str:
    properties = {"file": file, "line": line, "col": column, "title": title}
    listed = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items() if value is not None)
    return f"::{level} {listed}::{_escaped(message)}"


def _escaped(text: str, special: str = "") -> str:
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{special}" else each for each in text)
