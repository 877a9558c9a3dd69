"""A verdict as a section of the report page."""

from __future__ import annotations

from html import escape

from accel_migrate.proof.check import Quantity
from accel_migrate.proof.curves import figure
from accel_migrate.proof.meaning import meanings
from accel_migrate.proof.verdict import Verdict, item, on_stand_ins, table, unproven


def render(verdict: Verdict) -> str:
    problem = f'<p class="reason">{escape(verdict.problem)}</p>' if verdict.problem else ""
    badge = str(verdict.outcome)
    return (
        f'<section id="proof" class="proof"><h2><span class="badge {badge.replace(" ", "-")}">{badge}</span>'
        f"<span>{escape(verdict.name)}</span></h2>{problem}{_stand_ins(verdict)}{_difference(verdict)}{_figures(verdict)}{_table(verdict)}"
        f"{_meanings(verdict)}"
        "</section>"
    )


def _stand_ins(verdict: Verdict) -> str:
    told = on_stand_ins(verdict)
    lines = [f"Run{told}: no proof on the script's own data."] if told else []
    lines += [unproven(verdict)] if verdict.not_run else []
    return "".join(f'<p class="reason">{escape(line)}</p>' for line in lines)


def _figures(verdict: Verdict) -> str:
    original = [curve for curve in verdict.curves if curve.name == "original"]
    drawn = []
    for processes, title in ((1, "One process"), (verdict.processes, f"{verdict.processes} processes")):
        others = [c for c in verdict.curves if c.processes == processes and c.name != "original" and c.values]
        if others:
            drawn.append(figure(title, [*original, *others], *_compared(verdict, processes)))
    return "".join(drawn)


def _compared(verdict: Verdict, processes: int) -> tuple[int, int | None]:
    """How many losses count, and which is the first that differs."""
    check = verdict.check(Quantity.LOSSES, processes)
    if check is None:
        return 0, None
    if check.holds or check.difference is None:
        return check.agreed, None
    return check.total, check.difference.number


def _difference(verdict: Verdict) -> str:
    if verdict.broken is None or verdict.broken.difference is None:
        return ""
    difference = verdict.broken.difference
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td><code>{escape(value)}</code></td>'
        f'<td class="place">{escape(f"{event.file}:{event.line}") if event else ""}</td></tr>'
        for name, value, event in (
            ("original", difference.expected, difference.before),
            ("migrated", difference.found, difference.after),
        )
    )
    suspects = "".join(
        f'<li><span class="chip failed">{each.code or "change"}</span> '
        f'<span class="place">{escape(each.file)}:{each.line}</span> {escape(each.message)}</li>'
        for each in verdict.suspects
    )
    named = f"<p>Changes that could explain it, the most likely first:</p><ol>{suspects}</ol>" if suspects else ""
    title = f"First difference: {item(verdict.broken)}"
    return f'<div class="difference"><h3>{title}</h3><table>{rows}</table>{named}</div>'


def _table(verdict: Verdict) -> str:
    rows = "".join(
        f'<tr><td>{escape(processes)}</td><th scope="row">{escape(quantity)}</th>'
        f'<td><span class="chip {result}">{result}</span></td><td>{escape(told)}</td></tr>'
        for processes, quantity, result, told in table(verdict)
    )
    return f'<table class="checks"><caption>What was compared</caption>{rows}</table>' if rows else ""


def _meanings(verdict: Verdict) -> str:
    rows = "".join(
        f'<tr><th scope="row">{each.kind}</th><td>{each.shows}</td><td>{each.leaves_open}</td><td>{each.remedy}</td></tr>'
        for each in meanings(verdict)
    )
    head = "<tr><td></td><td>shows</td><td>does not show</td><td>what you can do</td></tr>"
    return (
        f'<table class="checks"><caption>What this shows, and what it does not</caption>{head}{rows}</table>'
        if rows
        else ""
    )
