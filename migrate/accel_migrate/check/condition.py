"""What a post-condition is: its texts for people, and the function that finds where a rewritten project breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from accel_migrate.check.evidence import Evidence, Found
from accel_migrate.check.pair import Pair
from accel_migrate.plan import Safety


@dataclass(frozen=True)
class Violation:
    """A place of the rewritten project where a condition does not hold: the loop is left, and it is a bug of ours."""

    code: str
    path: Path
    line: int  # of the rewritten file
    message: str  # a clause that names the code by its text: nobody sees the lines of a result that is not written
    cause: Path | None = None  # the file that brings it about, where that is another one


@dataclass(frozen=True)
class Project:
    """All files of a project side by side, those that stay as they are included."""

    files: tuple[Pair, ...]

    @cached_property
    def evidence(self) -> Evidence:
        """Both versions as whole programs: who calls whom, and what reaches where."""
        return Evidence((file.before.module for file in self.files), (file.after.module for file in self.files))

    @property
    def changed(self) -> tuple[Pair, ...]:
        return tuple(file for file in self.files if file.is_changed)


@dataclass(frozen=True)
class Condition:
    """One question about a rewritten project, with its code."""

    code: str
    name: str
    summary: str
    why: str
    example_before: str  # a result that is refused
    example_after: str  # the same, right
    find: Callable[[Project], Iterator[Violation]] = field(repr=False)
    safety: Safety = Safety.NOTE


def at_places(code: str, found: Callable[[Evidence], Found]) -> Callable[[Project], Iterator[Violation]]:
    """The violations of a condition that finds places of the result."""

    def find(project: Project) -> Iterator[Violation]:
        for file, node, message in found(project.evidence):
            yield Violation(code, file.path, getattr(node, "lineno", 1), message)

    return find
