"""The report as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.outcome import NOT_TORCH, Decision, Finding, Outcome
from accel_migrate.report import Report
from accel_migrate.report.diff import unified
from accel_migrate.report.statistics import statistics
from accel_migrate.report.text import answer, by_rule, reason_of, short_place, to_decide


def render(report: Report) -> str:
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield "# accel-migrate"
    yield ""
    yield answer(report)
    told = [outcome for outcome in report.outcomes if outcome.findings or outcome.reason != NOT_TORCH]
    if told:
        yield ""
        yield "| file | status | applied | not applied | notes |"
        yield "| --- | --- | --: | --: | --: |"
        yield from (_row(outcome) for outcome in told)
    for outcome in told:
        yield from _section(outcome, report)
    if report.statistics:
        yield from _rules(report)


def _row(outcome: Outcome) -> str:
    applied, notes = len(outcome.decided(Decision.APPLIED)), len(outcome.decided(Decision.NOTE))
    rest = len(outcome.findings) - applied - notes
    status = f"{outcome.status}: {reason_of(outcome)}" if outcome.reason else str(outcome.status)
    return f"| {_code(outcome.name)} | {_cell(status)} | {applied} | {rest} | {notes} |"


def _section(outcome: Outcome, report: Report) -> Iterator[str]:
    if outcome.findings:
        yield ""
        yield f"## {_code(outcome.name)}"
        yield ""
        if report.verbose:
            yield from (_item(finding, report) for finding in outcome.findings)
        else:
            yield from (_item(finding, report) for finding in to_decide(outcome))
            yield from _changes(outcome)
    if report.diff and outcome.parts:
        diff = unified(outcome).decode("utf-8", "backslashreplace").rstrip("\n")
        fence = "`" * max(3, _longest_run(diff) + 1)
        yield from ("", "<details><summary>Diff</summary>", "", f"{fence}diff", diff, fence, "", "</details>")


def _changes(outcome: Outcome) -> Iterator[str]:
    if outcome.decided(Decision.APPLIED):
        yield from ("", "| rule | what it does | lines |", "| --- | --- | --- |")
    for code, what, findings in by_rule(outcome):
        lines = ", ".join(dict.fromkeys(short_place(finding) for finding in findings))
        yield f"| {code} | {_cell(what)} | {lines} |"


def _item(finding: Finding, report: Report) -> str:
    would = finding.decision is Decision.APPLIED and not report.written
    tag = "would apply" if would else str(finding.decision)
    return f"- {_code(finding.place)} **{finding.code}** {tag}: {_cell(finding.message)}"


def _rules(report: Report) -> Iterator[str]:
    yield from ("", "| rule | findings |", "| --- | --- |")
    for code, decisions in statistics(report.outcomes).rules.items():
        yield f"| {code} | {', '.join(f'{number} {decision}' for decision, number in sorted(decisions.items()))} |"


def _code(text: str) -> str:
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
