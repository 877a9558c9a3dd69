"""The report for programs, version 1; its schema is docs/report-schema.json."""

from __future__ import annotations

import json
from typing import Any

from accel_migrate.outcome import Decision, Finding, Outcome
from accel_migrate.plan import Status
from accel_migrate.report import Report
from accel_migrate.report.diff import unified
from accel_migrate.report.statistics import statistics

VERSION = 1


def render(report: Report) -> str:
    document = {
        "version": VERSION,
        "files": [_file(outcome, report) for outcome in report.outcomes],
        "summary": _summary(report),
        **({"proof": report.proof.data} if report.proof else {}),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _file(outcome: Outcome, report: Report) -> dict[str, Any]:
    changes = [finding for finding in outcome.findings if finding.decision is not Decision.NOTE]
    entry: dict[str, Any] = {
        "path": outcome.name,
        "status": str(outcome.status),
        "reason": outcome.reason,
        "changes": [_change(finding) for finding in changes],
        "notes": [_place(finding) for finding in outcome.decided(Decision.NOTE)],
    }
    if outcome.line is not None:
        entry["line"] = outcome.line
    if report.diff:
        entry["diff"] = unified(outcome).decode("utf-8", "backslashreplace")
    return entry


def _place(finding: Finding) -> dict[str, Any]:
    cell = {} if finding.cell is None else {"cell": finding.cell, "cell_line": finding.line}
    where = {"line": finding.joined_line or finding.line, "column": finding.column}
    return {"code": finding.code, **cell, **where, "message": finding.message}


def _change(finding: Finding) -> dict[str, Any]:
    return {
        **_place(finding),
        "safety": str(finding.safety),
        "applied": finding.decision is Decision.APPLIED,
        "decision": str(finding.decision),
    }


def _summary(report: Report) -> dict[str, Any]:
    counts = statistics(report.outcomes)
    return {
        "written": report.written,
        "files": {str(status): counts.files[status] for status in Status},
        "changes": {str(decision): counts.findings[decision] for decision in Decision if decision != Decision.NOTE},
        "notes": counts.findings[Decision.NOTE],
        "lines": {"total": counts.lines, "removed": counts.lines_removed, "added": counts.lines_added},
        "rules": {
            code: {str(decision): number for decision, number in sorted(decisions.items())}
            for code, decisions in counts.rules.items()
        },
    }
