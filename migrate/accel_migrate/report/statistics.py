"""Counts over a run: files, findings by what became of them, rules, and how much of the code was touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from accel_migrate.outcome import Decision, Outcome
from accel_migrate.plan import Status


@dataclass(frozen=True)
class Statistics:
    files: Counter[Status]
    findings: Counter[Decision]
    rules: dict[str, Counter[Decision]]
    lines: int
    lines_removed: int
    lines_added: int

    @property
    def applied(self) -> int:
        return self.findings[Decision.APPLIED]

    @property
    def not_applied(self) -> int:
        return sum(self.findings.values()) - self.applied - self.findings[Decision.NOTE]


def statistics(outcomes: Iterable[Outcome]) -> Statistics:
    files: Counter[Status] = Counter()
    findings: Counter[Decision] = Counter()
    rules: dict[str, Counter[Decision]] = {}
    lines = removed = added = 0
    for outcome in outcomes:
        files[outcome.status] += 1
        lines, removed, added = lines + outcome.lines, removed + outcome.removed, added + outcome.added
        for finding in outcome.findings:
            findings[finding.decision] += 1
            rules.setdefault(finding.code, Counter())[finding.decision] += 1
    return Statistics(files, findings, dict(sorted(rules.items())), lines, removed, added)
