"""The report for a person at a terminal: the answer, then what to decide, then what was changed, rule by rule."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

from accel_migrate.catalogue import explained
from accel_migrate.outcome import NOT_TORCH, Decision, Finding, Outcome
from accel_migrate.plan import Status
from accel_migrate.report import Report
from accel_migrate.report.statistics import Statistics, statistics

LOOP_LEFT = "AM901"
TOLD_TO_ALL = ("AM801", "AM911")  # what N processes mean for the batch; how a notebook starts them
COLORS = {
    Decision.APPLIED: "32",
    Decision.REVIEW: "33",
    Decision.LEFT: "33",
    Decision.NOTE: "36",
}
NEXT_STEP = {
    Decision.REVIEW: "--unsafe-fixes applies it",
    Decision.LEFT: "not applied: its training loop was left as it is",
    Decision.DESELECTED: "not applied: turned off by --select or --ignore",
    Decision.SUPPRESSED: "not applied: the comment on this line asks for it",
    Decision.DECLINED: "not applied: declined",
}


def concise(report: Report) -> str:
    """The answer, then every finding as `path:line:col: CODE [what became of it] message`."""
    return "".join(f"{line}\n" for line in (answer(report), *_concise(report), *_statistics(report)))


def full(report: Report) -> str:
    """One block per file: what a person should decide, with the code in question, then the changes by rule; -v lists each."""
    return "".join(f"{line}\n" for line in (answer(report), *_full(report), *_statistics(report)))


def _concise(report: Report) -> Iterator[str]:
    for outcome in report.outcomes:
        for finding in outcome.findings:
            yield _line(outcome, finding, report)


def _full(report: Report) -> Iterator[str]:
    for outcome in report.outcomes:
        if outcome.status is Status.FAILED or not (report.verbose or _is_news(outcome)):
            continue  # failures are told on standard error, one line each
        yield ""
        status = "would be migrated" if outcome.status is Status.MIGRATED and not report.written else outcome.status
        reason = f" ({reason_of(outcome)})" if outcome.reason else ""
        yield _paint(f"{_printable(outcome.name)}: {status}", "1", report) + reason
        for finding in outcome.findings if report.verbose else to_decide(outcome):
            yield _line(outcome, finding, report)
            if finding.decision is not Decision.APPLIED:
                if finding.excerpt:
                    yield f"    {_printable(finding.excerpt)}"
                if finding.detail and report.verbose:
                    yield f"    ({_printable(finding.detail)})"
                if finding.decision in NEXT_STEP:
                    yield f"    ({NEXT_STEP[finding.decision]})"
        if not report.verbose:
            yield from _grouped(outcome, report)


def reason_of(outcome: Outcome) -> str:
    """Why a file is as it was: the reasons of its training loops stand with each of them."""
    loops = sum(finding.code == LOOP_LEFT for finding in outcome.findings)
    return f"{_many(loops, 'training loop')} left" if loops else outcome.reason


def to_decide(outcome: Outcome) -> list[Finding]:
    """What asks for a decision: a loop that is left first, and last what nearly every script is told."""
    settled = (Decision.APPLIED, Decision.LEFT)
    found = [finding for finding in outcome.findings if finding.decision not in settled]
    return sorted(found, key=lambda finding: (finding.code != LOOP_LEFT, finding.code in TOLD_TO_ALL))


def by_rule(outcome: Outcome) -> Iterator[tuple[str, str, list[Finding]]]:
    """The changes that were made, rule by rule: its code, what it did, and where."""
    groups: dict[str, list[Finding]] = {}
    for finding in outcome.decided(Decision.APPLIED):
        groups.setdefault(finding.code, []).append(finding)
    summaries = {rule.code: rule.summary for rule in explained()} if groups else {}
    for code, findings in sorted(groups.items()):
        messages = {finding.message for finding in findings}
        yield code, messages.pop() if len(messages) == 1 else summaries.get(code, ""), findings


def _grouped(outcome: Outcome, report: Report) -> Iterator[str]:
    for code, what, findings in by_rule(outcome):
        lines = ", ".join(dict.fromkeys(short_place(finding) for finding in findings))
        count = f" x{len(findings)}" if len(findings) > 1 else ""
        word = "" if findings[0].cell is not None else "line " if len(findings) == 1 else "lines "
        yield f"    {_paint(code, COLORS[Decision.APPLIED], report)}{count} {what}: {word}{lines}"
    if left := outcome.decided(Decision.LEFT):
        yield f"    {_many(len(left), 'change')} not applied, because the training loop is left (-v lists them)"


def short_place(finding: Finding) -> str:
    """Its line, in a notebook with its cell."""
    return f"{f'cell {finding.cell}:' if finding.cell is not None else ''}{finding.line}"


def _is_news(outcome: Outcome) -> bool:
    return bool(outcome.findings) or outcome.reason != NOT_TORCH


def _line(outcome: Outcome, finding: Finding, report: Report) -> str:
    would = finding.decision is Decision.APPLIED and not report.written
    tag = "would apply" if would else str(finding.decision)
    code = _paint(finding.code, COLORS.get(finding.decision, "0"), report)
    return f"{_printable(outcome.name)}:{finding.place}: {code} [{tag}] {finding.message}"


def state_of(outcome: Outcome, written: bool) -> str:
    """What became of a file: done or proposed, left with a reason, or nothing to do."""
    if outcome.status is Status.MIGRATED:
        return "migrated" if written else "would be migrated"
    if outcome.status is not Status.UNCHANGED:
        return str(outcome.status)
    return "left" if any(finding.code == LOOP_LEFT for finding in outcome.findings) else "nothing to do"


def notes_of(outcome: Outcome) -> Iterator[str]:
    """What a person should know of a file, as `line:col: CODE [note] message`, each with its line of code."""
    for finding in outcome.findings:
        if finding.decision is not Decision.APPLIED:
            excerpt = f"\n    {_printable(finding.excerpt)}" if finding.excerpt else ""
            yield f"{finding.place}: {finding.code} [{finding.decision}] {finding.message}{excerpt}"


def next_steps(report: Report, launcher: str) -> str:
    """The commands that come after a run in place; empty where nothing was migrated."""
    migrated = [each for each in report.outcomes if each.status is Status.MIGRATED]
    if not migrated:
        return ""
    scripts = [each.name for each in migrated]
    script = shlex.quote(scripts[0]) if len(scripts) == 1 and _does_something(migrated[0].path) else "SCRIPT"
    paths = " ".join(map(shlex.quote, scripts)) if len(scripts) < 4 else "PATH..."
    steps = {
        "accel-migrate --undo": "put everything back",
        f"accel-migrate --undo && accel-migrate {paths} --write-if-proven": "again, written only if it trains as it did",
        f"{launcher} {script}": "run it on two processes",
        "accel-migrate --notes": "read the notes again",
    }
    if scripts[0].endswith(".ipynb"):
        del steps[f"{launcher} {script}"]
    width = max(map(len, steps))
    return "\nNext:\n" + "".join(f"  {command:{width}}  # {what}\n" for command, what in steps.items())


def _does_something(path: Path) -> bool:
    """Whether a file runs something by itself; one that only defines is started by another."""
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, ValueError, SyntaxError):
        return True
    defines = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    told = [statement for statement in statements if not isinstance(statement, defines)]
    return any(not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in told)


def answer(report: Report) -> str:
    """One sentence that answers what happened."""
    counts = statistics(report.outcomes)
    done, total = counts.files[Status.MIGRATED], sum(counts.files.values())
    if not done:
        verb = "Nothing to change" if not report.written else "Nothing changed"
        sentence = f"{verb} in {_many(total, 'file')}"
    else:
        verb = "Migrated" if report.written else "Would migrate"
        sentence = f"{verb} {done} of {_many(total, 'file')} with {_many(counts.applied, 'change')}"
    return "; ".join([sentence, *_rest(counts)]) + "."


def _rest(counts: Statistics) -> Iterator[str]:
    if review := counts.findings[Decision.REVIEW]:
        yield f"{_many(review, 'change')} for review (--unsafe-fixes)"
    if left := counts.not_applied - counts.findings[Decision.REVIEW]:
        yield f"{_many(left, 'change')} left"
    if notes := counts.findings[Decision.NOTE]:
        yield f"{_many(notes, 'note')} to read"
    for status in (Status.SKIPPED, Status.FAILED):
        if counts.files[status]:
            yield f"{counts.files[status]} {status}"


def _statistics(report: Report) -> Iterator[str]:
    if not report.statistics:
        return
    counts = statistics(report.outcomes)
    found = counts.applied + counts.not_applied
    yield ""
    yield "Statistics"
    yield "  files    " + ", ".join(f"{counts.files[status]} {status}" for status in Status)
    yield f"  changes  {counts.applied} applied of {found} found{_percent(counts.applied, found)}"
    touched = _percent(counts.lines_removed, counts.lines)
    yield f"  lines    {counts.lines_removed} removed and {counts.lines_added} added, of {counts.lines}{touched}"
    for code, decisions in counts.rules.items():
        yield f"  {code}    " + ", ".join(f"{number} {decision}" for decision, number in sorted(decisions.items()))


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in text)


def _paint(text: str, color: str, report: Report) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if report.color else text
