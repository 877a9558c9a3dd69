"""A progress bar on a terminal for runs that are long enough to wonder about."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

FEWEST_TASKS = 50


def progress(results: Iterable[T], total: int, *, wanted: bool) -> Iterator[T]:
    """The same results, with a bar on standard error while they come in."""
    if not wanted or total < FEWEST_TASKS or not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(results, "Migrating", total=total, console=Console(stderr=True), transient=True)
