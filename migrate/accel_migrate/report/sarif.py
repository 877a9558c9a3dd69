"""The report as SARIF 2.1.0, for code scanning services."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from accel_migrate.catalogue import explained
from accel_migrate.matched_lines import MatchedLines
from accel_migrate.outcome import Decision, Finding, Outcome, Part
from accel_migrate.plan import Status
from accel_migrate.report import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Decision.APPLIED: "warning", Decision.REVIEW: "warning", Decision.LEFT: "warning"}


def render(report: Report) -> str:
    failures = [_notification(outcome) for outcome in report.outcomes if outcome.status is Status.FAILED]
    run = {
        "tool": {"driver": {"name": "accel-migrate", "rules": [_rule(code) for code in _codes(report)]}},
        "invocations": [{"executionSuccessful": not failures, "toolExecutionNotifications": failures}],
        "columnKind": "unicodeCodePoints",
        "results": [result for outcome in report.outcomes for result in _results(outcome, report)],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _codes(report: Report) -> list[str]:
    return sorted({finding.code for outcome in report.outcomes for finding in outcome.findings})


def _rule(code: str) -> dict[str, Any]:
    for rule in explained():
        if rule.code == code:
            return {
                "id": code,
                "name": rule.name,
                "shortDescription": {"text": rule.summary},
                "fullDescription": {"text": rule.why},
                "properties": {"safety": str(rule.safety)},
            }
    return {"id": code}


def _results(outcome: Outcome, report: Report) -> Iterator[dict[str, Any]]:
    fix = _fix(outcome) if report.diff and outcome.parts else None
    for finding in outcome.findings:
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "level": _level(finding, report),
            "message": {"text": finding.message},
            "locations": [_location(outcome, finding)],
            "properties": {"safety": str(finding.safety), "decision": str(finding.decision)},
        }
        if fix and finding.decision is Decision.APPLIED:
            # The changes of a file belong together, so the first one carries the fix for all.
            result["fixes"], fix = [fix], None
        yield result


def _level(finding: Finding, report: Report) -> str:
    done = finding.decision is Decision.APPLIED and report.written
    return "note" if done else LEVELS.get(finding.decision, "note")


def _location(outcome: Outcome, finding: Finding) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(outcome)}}
    if finding.cell is None:
        physical["region"] = {"startLine": finding.line, "startColumn": finding.column}
        return {"physicalLocation": physical}
    where = {"name": f"cell {finding.cell}", "fullyQualifiedName": f"cell {finding.cell}, line {finding.line}"}
    return {"physicalLocation": physical, "logicalLocations": [where]}


def _uri(outcome: Outcome) -> str:
    return quote(os.fsencode(outcome.name))


def _notification(outcome: Outcome) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(outcome)}}
    if outcome.line is not None:
        physical["region"] = {"startLine": outcome.line}
    place = {"physicalLocation": physical}
    return {"level": "error", "message": {"text": f"{outcome.name} {outcome.reason}"}, "locations": [place]}


def _fix(outcome: Outcome) -> dict[str, Any] | None:
    """All changes of a script as replacements of lines; cells of a notebook are no lines of its file."""
    replacements = [each for part in outcome.parts if not part.label for each in _replacements(part)]
    if not replacements:
        return None
    change = {"artifactLocation": {"uri": _uri(outcome)}, "replacements": replacements}
    return {"description": {"text": "Migrate the file"}, "artifactChanges": [change]}


def _replacements(part: Part) -> Iterator[dict[str, Any]]:
    before, after = (data.decode(part.encoding).splitlines(keepends=True) for data in (part.before, part.after))
    for kind, start, end, new_start, new_end in MatchedLines(before, after).get_opcodes():
        if kind != "equal":
            region = {"startLine": start + 1, "startColumn": 1, "endLine": end + 1, "endColumn": 1}
            yield {"deletedRegion": region, "insertedContent": {"text": "".join(after[new_start:new_end])}}
