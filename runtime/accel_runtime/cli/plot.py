"""`accel plot`: the curves of a run as one page, from the JSON lines of its tracker."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import click

from accel_runtime.errors import ConfigError

LINES = "metrics.jsonl"
WIDTH, HEIGHT = 720, 220  # of the drawing's own units, as on the page of a proof
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 18, 22
MOST_POINTS = 1000  # of a curve; more are thinned out, first and last are kept
NOT_DRAWN = ("step", "time")


class Point(NamedTuple):
    step: float
    value: float


Curves = dict[str, list[Point]]  # by the name of the value


@click.command("plot")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write the page.  [default: curves.html in the first RUN]"
)
def command(runs: tuple[str, ...], output: str | None) -> None:
    """Draw the curves of each RUN, a folder of the tracker `jsonl` or its file, as one page without network."""
    sources = {run: lines_of(Path(run)) for run in runs}
    page = render({run: curves_in(path) for run, path in sources.items()})
    target = Path(output) if output else next(iter(sources.values())).with_name("curves.html")
    target.write_text(page, encoding="utf-8")
    click.echo(target)


def lines_of(run: Path) -> Path:
    """The file of a run; ConfigError where it is missing, with what is there."""
    if run.is_file():
        return run
    if (run / LINES).is_file():
        return run / LINES
    below = sorted(path.parent for path in run.glob(f"*/{LINES}"))
    hint = f"; did you mean {below[0]}?" if below else "; a run has one with Accelerator(log_with='jsonl')"
    raise ConfigError(f"{run} has no {LINES}{hint}")


def curves_in(path: Path) -> Curves:
    """The numbers of each line by name; a line that was cut short by a kill ends the record."""
    found: Curves = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        try:
            values = json.loads(line)
        except ValueError:
            break
        step = values.get("step")
        for name, value in values.items():
            if name not in NOT_DRAWN and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append(Point(number if step is None else step, value))
    return found


def render(runs: Mapping[str, Curves]) -> str:
    names = dict.fromkeys(name for curves in runs.values() for name in curves)
    figures = "".join(_figure(name, {run: c[name] for run, c in runs.items() if name in c}) for name in names)
    style = files("accel_runtime.cli").joinpath("plot.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>accel plot: {escape(', '.join(runs))}</title><style>\n{style}</style></head>\n"
        f"<body><h1>{escape(', '.join(runs))}</h1>{figures or '<p>No numbers were logged.</p>'}</body></html>\n"
    )


def _figure(name: str, curves: Mapping[str, Sequence[Point]]) -> str:
    points = [point for curve in curves.values() for point in curve]
    frame = _Frame(points)
    keys = "".join(f'<li><i class="key r{i % 4}"></i>{escape(run)}</li>' for i, run in enumerate(curves))
    lines = "".join(
        f'<polyline class="r{i % 4}" points="{" ".join(frame.place(p) for p in _thinned(curve))}"/>'
        for i, curve in enumerate(curves.values())
    )
    legend = f'<ul class="keys">{keys}</ul>' if len(curves) > 1 else ""
    last = ", ".join(f"{curve[-1].value:.4g}" for curve in curves.values())
    return (
        f'<figure class="curves"><figcaption><b>{escape(name)}</b> <span>last {last}</span>{legend}</figcaption>'
        f'<svg role="img" aria-label="{escape(name)}" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(frame.axes())}{lines}</svg>'
        "</figure>"
    )


def _thinned(curve: Sequence[Point]) -> Sequence[Point]:
    every = math.ceil(len(curve) / MOST_POINTS)
    return [*curve[:-1:every], curve[-1]]


class _Frame:
    """Turns steps and values into places of a drawing."""

    def __init__(self, points: Sequence[Point]) -> None:
        steps, values = [p.step for p in points], [p.value for p in points]
        self.first, self.last = min(steps), max(max(steps), min(steps) + 1)
        self.low, self.high = min(values), max(values)
        self.high = self.high if self.high > self.low else self.low + 1.0

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def place(self, point: Point) -> str:
        return f"{self.x(point.step):.1f},{self.y(point.value):.1f}"

    def axes(self) -> Iterator[str]:
        for part in (0.0, 0.5, 1.0):
            value = self.low + part * (self.high - self.low)
            y = self.y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="left" x="{LEFT - 6}" y="{y + 4:.1f}">{value:.3g}</text>'
        for part in range(6):
            step = self.first + part / 5 * (self.last - self.first)
            yield f'<text class="below" x="{self.x(step):.1f}" y="{HEIGHT - 6}">{step:.4g}</text>'
