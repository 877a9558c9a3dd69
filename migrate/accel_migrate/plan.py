"""What the codemod wants to do to a file, as frozen data: decided first, applied later, reported either way."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal


class Safety(StrEnum):
    """How much a change may be trusted."""

    SAFE = "safe"  # trains as before
    REVIEW = "review"  # right in most scripts; applied only on request
    NOTE = "note"  # nothing is edited: a person should look


@dataclass(frozen=True, slots=True)
class Replace:
    """Characters `start` to `end` of the text become `text`; both lie in the expressions of one statement."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The statement goes, with its trailing comment. `keep_comments` says whether the comments right above it stay.

    Where they go, `lines` may say how many of them do, counted from the statement; all of the block otherwise.
    """

    statement: ast.stmt
    keep_comments: bool = True
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Unimport:
    """One name of an import goes; with its last name the statement does."""

    statement: ast.Import | ast.ImportFrom
    name: ast.alias


@dataclass(frozen=True, slots=True)
class Uncomment:
    """The statement stays, and the comment right above it, which is no longer true, goes, or that many `lines` of it.

    With `behind` it is the one at the end of the statement's own line.
    """

    statement: ast.stmt
    lines: int | None = None
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """New statements beside an existing one, in its block and with its indentation; one string each.

    With `where="before"` they come under the comments of the anchor that `above_comments` does not cover.
    """

    anchor: ast.stmt
    statements: tuple[str, ...]
    where: Literal["before", "after"] = "after"
    blank_before: bool = False
    blank_after: bool = False
    above_comments: bool = True


@dataclass(frozen=True, slots=True)
class Substitute:
    """The statement gives way to others, which take over its comments and blank lines."""

    statement: ast.stmt
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unwrap:
    """A `with` or `if` gives way to its own body."""

    statement: ast.stmt


@dataclass(frozen=True, slots=True)
class Guard:
    """The statement comes under `if test:`."""

    statement: ast.stmt
    test: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """The statement comes under `for target in values:`, with its neighbours that do too, which may have an `else`."""

    statement: ast.stmt
    head: str
    otherwise: str = ""

    @property
    def text(self) -> str:
        """The loop with an empty block."""
        return f"{self.head}:\n    pass" + (f"\nelse:\n    {self.otherwise}" if self.otherwise else "")


@dataclass(frozen=True, slots=True)
class WorkOut:
    """An expression of the statement is worked out above it under a name, with all that changes in it."""

    statement: ast.stmt
    expression: ast.expr
    name: str


Edit = Replace | Remove | Unimport | Uncomment | Insert | Substitute | Unwrap | Guard | Repeat | WorkOut


@dataclass(frozen=True, slots=True)
class Change:
    """One finding of one rule in one file: all of its edits are applied, or none."""

    code: str
    line: int  # of the file before rewriting, from 1
    column: int  # from 1
    message: str
    safety: Safety = Safety.SAFE
    edits: tuple[Edit, ...] = ()
    loop: int | None = None  # the training loop it belongs to; None stands on its own
    required: bool = True  # without it the loop would be half migrated


@dataclass(frozen=True, eq=False, slots=True)
class Together:
    """Changes that stand or fall as one, each with its file: one answer holds for all. `of` counts all of their loop."""

    changes: tuple[tuple[Path, Change], ...]
    of: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know about a line: left alone, or worth a look after the rewrite."""

    code: str
    line: int
    column: int
    message: str
    detail: str = ""  # for whoever asks for more: what to report when the fault is ours


class Status(StrEnum):
    MIGRATED = "migrated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FileResult:
    """How one file ended. `after` equals `before` unless the status is `migrated`."""

    path: Path
    status: Status
    reason: str = ""
    applied: tuple[Change, ...] = ()
    refused: tuple[Change, ...] = ()  # found, but not applied: for review, deselected, suppressed, or its loop was left
    notes: tuple[Note, ...] = ()
    before: bytes = field(default=b"", repr=False)
    after: bytes = field(default=b"", repr=False)
