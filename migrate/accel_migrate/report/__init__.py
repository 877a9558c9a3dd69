"""What a run tells: one set of outcomes, many formats. A format is a function from a Report to text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from accel_migrate.outcome import Outcome

# Import paths, so that only the chosen format is loaded.
FORMATS = {
    "full": "accel_migrate.report.text:full",
    "concise": "accel_migrate.report.text:concise",
    "json": "accel_migrate.report.json:render",
    "sarif": "accel_migrate.report.sarif:render",
    "github": "accel_migrate.report.github:render",
    "markdown": "accel_migrate.report.markdown:render",
    "html": "accel_migrate.report.html:render",
}
FOR_PEOPLE = ("full", "concise")


@dataclass(frozen=True)
class Shown:
    """What a proof by running adds to a report, in the words of each format."""

    answer: str
    html: str  # a section of the page
    data: dict[str, Any]  # a member of the JSON document


@dataclass(frozen=True)
class Report:
    """Everything a format may show."""

    outcomes: tuple[Outcome, ...]
    written: bool = True  # changes are on disk, not only proposed
    diff: bool = False  # the diff is wanted inside the report
    statistics: bool = False
    verbose: bool = False
    color: bool = False
    proof: Shown | None = None  # with --verify


def render(report: Report, name: str) -> str:
    module, function = FORMATS[name].split(":")
    renderer: Callable[[Report], str] = getattr(import_module(module), function)
    return renderer(report)
