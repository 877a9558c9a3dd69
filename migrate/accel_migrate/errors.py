"""The one exception tree of the codemod; each message says what, where and what to do."""

from __future__ import annotations

import traceback
from pathlib import Path


class MigrateError(Exception):
    """A file or a request that cannot be handled; the message is one sentence for the user."""


class SourceError(MigrateError):
    """The file cannot be read as Python."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def internal_error(error: Exception) -> str:
    """One sentence about a fault of ours: what, where, and what to do."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    if isinstance(error, RecursionError):
        return "is nested too deeply to analyse"
    return (
        f"internal error, {type(error).__name__} at {where}: {error}; this is a bug of accel-migrate: please report it with "
        "the output of accel-migrate --check -v for this file"
    )
