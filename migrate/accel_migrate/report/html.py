"""The report as one page for a reviewer: no network, no other file, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from accel_migrate.catalogue import explained
from accel_migrate.outcome import NOT_TORCH, Decision, Finding, Outcome, Part
from accel_migrate.plan import Status
from accel_migrate.report import Report
from accel_migrate.report.highlight import Token, highlighted, to_html
from accel_migrate.report.side_by_side import Row, folded, rows
from accel_migrate.report.statistics import statistics
from accel_migrate.report.text import NEXT_STEP, answer, reason_of, state_of


def render(report: Report) -> str:
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    told = [outcome for outcome in report.outcomes if outcome.findings or outcome.reason != NOT_TORCH]
    proof = report.proof.html if report.proof else ""
    files_told = "".join(_file(each, report) for each in told)
    body = f"{_header(report)}{_contents(told, report)}<main>{proof}{files_told}</main>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>accel-migrate: {escape(_answer(report))}</title><style>\n{style}</style></head>\n"
        f"<body>{body}<script>\n{script}</script></body></html>\n"
    )


def _header(report: Report) -> str:
    counts = statistics(report.outcomes)
    tiles = {
        "files migrated" if report.written else "files to migrate": counts.files[Status.MIGRATED],
        "changes applied" if report.written else "changes to apply": counts.applied,
        "not applied": counts.not_applied,
        "notes to read": counts.findings[Decision.NOTE],
        "lines removed": counts.lines_removed,
        "lines added": counts.lines_added,
        "files failed": counts.files[Status.FAILED],
    }
    shown = "".join(
        f"<li><b>{number}</b> {label}</li>" for label, number in tiles.items() if number or "migrate" in label
    )
    return (
        '<header><div class="bar"><h1>accel-migrate</h1><button id="theme" type="button">Light or dark</button></div>'
        f'<p class="answer">{escape(_answer(report))}</p><ul class="tiles">{shown}</ul>{_rules(report)}</header>'
    )


def _answer(report: Report) -> str:
    return report.proof.answer if report.proof else answer(report)


def _rules(report: Report) -> str:
    """How often each rule spoke, with its one-line summary."""
    summaries = {rule.code: rule.summary for rule in explained()}
    lines = "".join(
        f'<tr><th scope="row">{code}</th><td>{escape(summaries.get(code, ""))}</td>'
        f"<td>{', '.join(f'{number} {decision}' for decision, number in sorted(decisions.items()))}</td></tr>"
        for code, decisions in statistics(report.outcomes).rules.items()
    )
    return f'<details class="rules"><summary>Rules</summary><table>{lines}</table></details>' if lines else ""


def _contents(told: Sequence[Outcome], report: Report) -> str:
    entries = "".join(
        f'<li><a href="#{_anchor(outcome)}">{_badge(outcome, report)}<span>{escape(outcome.name)}</span></a></li>'
        for outcome in told
    )
    return f'<nav aria-label="Files"><ul>{entries}</ul></nav>'


def _anchor(outcome: Outcome) -> str:
    return f"file-{escape(outcome.name)}"


def _badge(outcome: Outcome, report: Report) -> str:
    """What became of a file: a loop that was left is not one where there was nothing to do."""
    words = state_of(outcome, report.written)
    return f'<span class="badge {words.replace(" ", "-")} {outcome.status}">{words}</span>'


def _file(outcome: Outcome, report: Report) -> str:
    reason = f'<p class="reason">{escape(reason_of(outcome))}</p>' if outcome.reason else ""
    left = [each for each in outcome.findings if each.decision is not Decision.APPLIED]
    parts = "".join(_part(part, outcome, report) for part in outcome.parts)
    done = _list("Applied" if report.written else "Would be applied", outcome.decided(Decision.APPLIED), True)
    return (
        f'<section id="{_anchor(outcome)}"><h2>{_badge(outcome, report)}<span>{escape(outcome.name)}</span></h2>{reason}'
        f"{_list('Left for you to look at', left)}{parts}{done}</section>"
    )


def _list(title: str, findings: Sequence[Finding], closed: bool = False) -> str:
    if not findings:
        return ""
    items = "".join(f"<li>{_finding(finding)}</li>" for finding in findings)
    opened = "" if closed else " open"
    return f'<details class="list"{opened}><summary>{title} ({len(findings)})</summary><ul>{items}</ul></details>'


def _finding(finding: Finding) -> str:
    step = NEXT_STEP.get(finding.decision)
    excerpt = f"<pre>{escape(finding.excerpt)}</pre>" if finding.excerpt else ""
    return (
        f'<span class="chip {finding.decision}">{finding.code}</span> <span class="place">{finding.place}</span> '
        f"{escape(finding.message)}{f' <em>({escape(step)})</em>' if step else ''}{excerpt}"
    )


def _part(part: Part, outcome: Outcome, report: Report) -> str:
    """The two sides of a file or a cell, with far-away lines folded."""
    before, after = (_lf(data.decode(part.encoding)) for data in (part.before, part.after))
    old, new = highlighted(before), highlighted(after)
    here = [each for each in outcome.findings if _belongs(each, part)]
    by_line: dict[int, list[Finding]] = {}
    for finding in here:
        by_line.setdefault(finding.line, []).append(finding)
    every = list(rows(before.removesuffix("\n").split("\n"), after.removesuffix("\n").split("\n")))
    pieces = []
    for index, run in enumerate(folded(every, set(by_line))):
        lines = "".join(_row(row, old, new, by_line) for row in run)
        if index % 2:
            pieces.append(
                f'<tbody class="fold"><tr><td colspan="4"><button type="button">Show {len(run)} more lines</button>'
                f"</td></tr></tbody><tbody hidden>{lines}</tbody>"
            )
        elif run:
            pieces.append(f"<tbody>{lines}</tbody>")
    caption = f"<caption>{escape(part.label)}</caption>" if part.label else ""
    columns = '<colgroup><col class="numbers"><col><col class="numbers"><col></colgroup>'
    return f'<table class="diff">{caption}{columns}{"".join(pieces)}</table>'


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _belongs(finding: Finding, part: Part) -> bool:
    return finding.cell is None if not part.label else part.label == f"cell {finding.cell}"


def _row(row: Row, old: list[list[Token]], new: list[list[Token]], by_line: dict[int, list[Finding]]) -> str:
    sides = (*_side(row.left, old, row.left_marks, "old"), *_side(row.right, new, row.right_marks, "new"))
    findings = by_line.get(row.left or 0, [])
    changed = ' class="changed"' if row.changed else ""
    html = f"<tr{changed}>{''.join(sides)}</tr>"
    if findings:
        chips = "".join(_chip(finding) for finding in findings)
        html += f'<tr class="why"><td colspan="4">{chips}</td></tr>'
    return html


def _side(number: int | None, lines: list[list[Token]], marks: Sequence[tuple[int, int]], name: str) -> Iterator[str]:
    if number is None:
        yield f'<td class="number {name} none"></td><td class="code {name} none"></td>'
    else:
        code = to_html(lines[number - 1], marks)
        yield f'<td class="number {name}">{number}</td><td class="code {name}"><pre>{code}</pre></td>'


def _chip(finding: Finding) -> str:
    """The rule beside its line; the reason on hover, and on click or tap."""
    message = escape(finding.message)
    return (
        f'<details><summary class="chip {finding.decision}" title="{message}">{finding.code}</summary>'
        f"<p>{message}</p></details>"
    )
