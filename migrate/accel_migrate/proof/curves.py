"""Loss curves laid over each other, and what is between them, drawn as SVG: no script, no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from accel_migrate.proof.verdict import Curve

WIDTH, LOSSES, GAPS = 720, 220, 90  # of the drawing's own units
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 18, 22
MOST_DOTS = 60  # losses that are shown one by one; more are a line


def figure(title: str, curves: Sequence[Curve], compared: int, mark: int | None = None) -> str:
    """The first curve is the original's. `compared` losses count; `mark` is the number of the first that differs."""
    original, *others = curves
    mean = _mean(others)
    drawn = [original, *others, mean] if len(others) > 1 else [original, *others]
    legend = "".join(
        f'<li><i class="key {_kind(curve)}"></i>{escape(curve.name)}</li>' for curve in drawn if curve.values
    )
    return (
        f'<figure class="curves"><figcaption><b>{escape(title)}</b><ul class="keys">{legend}</ul></figcaption>'
        f"{_losses(drawn, mark)}{_gaps(original.values, mean.values, compared, mark)}</figure>"
    )


def _mean(curves: Sequence[Curve]) -> Curve:
    values = tuple(sum(each) / len(curves) for each in zip(*(curve.values for curve in curves)))
    return Curve("mean over ranks", curves[0].processes if curves else 1, values)


def _kind(curve: Curve) -> str:
    if curve.name.startswith("rank"):
        return f"rank r{int(curve.name.split()[1]) % 4}"
    return "original" if curve.name == "original" else "migrated"


def _losses(curves: Sequence[Curve], mark: int | None) -> str:
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    frame = _Frame(max(len(curve.values) for curve in curves), low, high if high > low else low + 1.0, LOSSES)
    lines = "".join(f'<polyline class="{_kind(c)}" points="{_points(frame, c.values)}"/>' for c in curves if c.values)
    dots = "".join(_dots(frame, curve) for curve in curves if len(curve.values) <= MOST_DOTS)
    return _svg("Losses", LOSSES, f"{frame.axes()}{_mark(frame, mark)}{lines}{dots}")


def _gaps(expected: Sequence[float], found: Sequence[float], compared: int, mark: int | None) -> str:
    """How far the migrated script is from the original, loss by loss; what is not compared is drawn faint."""
    gaps = [abs(b - a) if math.isfinite(a) and math.isfinite(b) else 0.0 for a, b in zip(expected, found)]
    largest = max(gaps, default=0.0)
    frame = _Frame(max(len(expected), len(found)), 0.0, largest or 1.0, GAPS, bare=not largest)
    bars = "".join(
        f'<line class="{_gap_kind(number, compared, mark)}" '
        f'x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(gap):.1f}">'
        f"<title>loss {number}: {gap:.3g} apart</title></line>"
        for number, gap in enumerate(gaps, 1)
        if gap and (x := frame.x(number))
    )
    counted = max(gaps[:compared], default=0.0)
    words = f"difference, at most {counted:.2g}" if counted else "no difference" if compared else "not compared"
    rest = f"; not compared from loss {compared + 1} on" if 0 < compared < len(gaps) else ""
    label = f'<text x="{LEFT}" y="{TOP - 6}">{words}{rest}</text>'
    return _svg("Difference", GAPS, f"{frame.axes()}{_mark(frame, mark)}{bars}{label}")


def _gap_kind(number: int, compared: int, mark: int | None) -> str:
    if mark is not None and number >= mark:
        return "gap far"
    return "gap" if number <= compared else "gap aside"


class _Frame:
    """Turns numbers of losses and values into places of a drawing."""

    def __init__(self, count: int, low: float, high: float, height: int, bare: bool = False) -> None:
        self.count, self.low, self.high, self.height, self.bare = max(count, 2), low, high, height, bare

    def x(self, number: int) -> float:
        return LEFT + (number - 1) * (WIDTH - LEFT - RIGHT) / (self.count - 1)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.height - BOTTOM - part * (self.height - TOP - BOTTOM)

    def axes(self) -> str:
        return "".join(self._axes())

    def _axes(self) -> Iterator[str]:
        for part in (0.0, 1.0) if self.height == GAPS else (0.0, 0.5, 1.0):
            value = self.low + part * (self.high - self.low)
            y = self.y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            if not self.bare or not part:
                yield f'<text class="left" x="{LEFT - 6}" y="{y + 4:.1f}">{value:.3g}</text>'
        step = max(1, round(self.count / 10))
        for number in range(1, self.count + 1, step):
            yield f'<text class="below" x="{self.x(number):.1f}" y="{self.height - 6}">{number}</text>'


def _points(frame: _Frame, values: Sequence[float]) -> str:
    finite = [(number, value) for number, value in enumerate(values, 1) if math.isfinite(value)]
    return " ".join(f"{frame.x(number):.1f},{frame.y(value):.1f}" for number, value in finite)


def _dots(frame: _Frame, curve: Curve) -> str:
    return "".join(
        f'<circle class="{_kind(curve)}" cx="{frame.x(number):.1f}" cy="{frame.y(value):.1f}" r="2.5">'
        f"<title>{escape(curve.name)}, loss {number}: {value:.9g}</title></circle>"
        for number, value in enumerate(curve.values, 1)
        if math.isfinite(value)
    )


def _mark(frame: _Frame, number: int | None) -> str:
    if number is None or number > frame.count:
        return ""
    x = frame.x(number)
    return f'<line class="first" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{frame.height - BOTTOM}"/>'


def _svg(label: str, height: int, inside: str) -> str:
    return f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height}">{inside}</svg>'
