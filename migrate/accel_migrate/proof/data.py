"""A verdict for programs: the member `proof` of the JSON report."""

from __future__ import annotations

import math
from typing import Any

from accel_migrate.proof.check import Check
from accel_migrate.proof.record import Event
from accel_migrate.proof.verdict import Verdict, answer


def render(verdict: Verdict) -> dict[str, Any]:
    return {
        "script": verdict.name,
        "outcome": str(verdict.outcome),
        "answer": answer(verdict),
        "problem": verdict.problem,
        "written": verdict.written,
        "stand_ins": [{"what": each.what, "how": each.how} for each in verdict.stand_ins],
        "not_run": list(verdict.not_run),
        "step": {"result": str(verdict.step.result), "why": verdict.step.why} if verdict.step else None,
        "checks": [_check(check) for check in verdict.checks],
        "suspects": [
            {"path": each.file, "line": each.line, "code": each.code, "message": each.message}
            for each in verdict.suspects
        ],
        "losses": [
            {"run": curve.name, "processes": curve.processes, "values": [_number(value) for value in curve.values]}
            for curve in verdict.curves
        ],
    }


def _check(check: Check) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "quantity": str(check.quantity),
        "processes": check.processes,
        "result": str(check.result),
        "agreed": check.agreed,
        "total": check.total,
        "largest": _number(check.largest),
        "tolerance": _number(check.tolerance),
        "note": check.note,
    }
    if check.difference is not None and not check.holds:
        entry["difference"] = {
            "number": check.difference.number,
            "original": {"value": check.difference.expected, **_place(check.difference.before)},
            "migrated": {"value": check.difference.found, **_place(check.difference.after)},
        }
    return entry


def _place(event: Event | None) -> dict[str, Any]:
    return {} if event is None else {"path": event.file, "line": event.line}


def _number(value: float) -> float | str:
    """JSON has no word for what is not finite."""
    return value if math.isfinite(value) else str(value)
