"""Puts a run on the two streams: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from accel_migrate.options import Options
from accel_migrate.outcome import Outcome
from accel_migrate.plan import Status
from accel_migrate.report import FOR_PEOPLE, Report, render
from accel_migrate.report.diff import unified
from accel_migrate.report.text import next_steps
from accel_migrate.write import write_whole

LAUNCHERS = {"accel_runtime": "accel launch --num-processes 2", "accelerate": "accelerate launch --num_processes 2"}


class Presenter:
    """Shows outcomes while they come in, and the report when all are there."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.format = options.output_format or "full"
        self.for_people = self.format in FOR_PEOPLE
        self.streams_diff = options.diff and self.for_people
        self.leaves_the_terminal_free = not options.quiet and not (self.streams_diff and sys.stdout.isatty())
        self.writes_in_place = options.writes and not options.reads_stdin and options.output is None
        self.can_undo = True
        self.needs_texts = options.html is not None or (options.diff and not self.for_people)

    def stream(self, outcome: Outcome) -> None:
        if self.streams_diff:
            sys.stdout.buffer.write(unified(outcome, color=wants_color(self.options.color, sys.stdout, os.environ)))
            sys.stdout.buffer.flush()

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        options = self.options
        for outcome in outcomes:
            if outcome.status is Status.FAILED:
                print(f"accel-migrate: {outcome.place}: {outcome.reason}", file=sys.stderr)
        # Standard output is taken when it carries a diff to apply or the script itself.
        taken = self.streams_diff or (options.reads_stdin and options.writes and options.output is None)
        stream = sys.stderr if taken else sys.stdout
        report = Report(
            outcomes=tuple(outcomes),
            written=options.writes,
            diff=options.diff and not self.streams_diff,
            statistics=options.statistics,
            verbose=options.verbose,
            color=self.for_people and wants_color(options.color, stream, os.environ),
        )
        if options.html is not None:
            write_whole(options.html, render(report, "html").encode("utf-8", "backslashreplace"))
        if not (options.quiet and self.for_people):
            stream.write(render(report, self.format))
        if self.format == "full" and self.writes_in_place and self.can_undo and not options.quiet:
            stream.flush()  # or what comes next would stand before it in a pipe
            sys.stderr.write(next_steps(report, LAUNCHERS[options.target or "accel_runtime"]))


def wants_color(choice: str, stream: TextIO, environment: Mapping[str, str]) -> bool:
    if choice == "auto":
        return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return choice == "always"
