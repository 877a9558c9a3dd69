"""How one file ended, as every report tells it: findings at places one can open, and the texts before and after."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from accel_migrate.plan import Safety, Status

A_TEST = "is a test; name the file itself to have it migrated"
NOT_TORCH = "does not use torch"  # the one reason for which a file is not worth a line in a report


class Decision(StrEnum):
    """What became of a finding."""

    APPLIED = "applied"
    REVIEW = "review"  # right in most scripts; --unsafe-fixes applies it
    DESELECTED = "deselected"  # by --select or --ignore
    SUPPRESSED = "suppressed"  # by a comment in the file
    DECLINED = "declined"  # by the person at the prompt
    LEFT = "left"  # its training loop was left alone
    NOTE = "note"  # nothing to apply: a person should look


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report."""

    code: str
    line: int
    column: int
    message: str
    safety: Safety
    decision: Decision
    cell: int | None = None  # of a notebook, counted from 1 over all cells; `line` counts in it
    excerpt: str = ""  # the line of code that it speaks about
    joined_line: int | None = None  # of a notebook, counted over all code cells
    detail: str = ""  # for whoever asks for more

    @property
    def place(self) -> str:
        cell = f"cell {self.cell}:" if self.cell is not None else ""
        return f"{cell}{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Part:
    """A text before and after, in the file's own bytes: a whole file, or one cell of a notebook."""

    label: str  # "" for a whole file
    before: bytes
    after: bytes
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One file of a run. `before` and `after` are empty unless there is something to write."""

    path: Path
    name: str  # as the user knows the file: relative to the current folder where it can be
    status: Status
    reason: str = ""
    line: int | None = None  # of what made the file fail
    findings: tuple[Finding, ...] = ()
    parts: tuple[Part, ...] = field(default=(), repr=False)
    before: bytes = field(default=b"", repr=False)
    after: bytes = field(default=b"", repr=False)
    lines: int = 0
    removed: int = 0  # lines that the rewrite takes out
    added: int = 0

    @property
    def place(self) -> str:
        return self.name if self.line is None else f"{self.name}:{self.line}"

    def without_texts(self) -> Outcome:
        """The same outcome for keeping: what was found, without the bytes."""
        return replace(self, parts=(), before=b"", after=b"")

    def failed(self, reason: str) -> Outcome:
        """The same file, left as it was after all."""
        return replace(self.without_texts(), status=Status.FAILED, reason=reason, findings=(), removed=0, added=0)

    def decided(self, *decisions: Decision) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.decision in decisions)


def shown(path: Path, current: Path) -> str:
    """The path as a person in the folder `current` would write it, with forward slashes."""
    absolute = current / path
    return absolute.relative_to(current).as_posix() if absolute.is_relative_to(current) else absolute.as_posix()
