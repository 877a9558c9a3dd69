"""Two verbs for the tests of rules, and one for what is only said: each takes a whole script as text."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source

ACCELERATE = Settings(target="accelerate")


def rewritten(before: str, after: str, settings: Settings = DEFAULTS) -> FileResult:
    """The script becomes exactly the other one."""
    result = _migrated(before, settings)
    assert result.status is Status.MIGRATED, result.reason or [note.message for note in result.notes]
    assert result.after.decode() == dedent(after).lstrip("\n")
    return result


def migrated(source: str, settings: Settings = DEFAULTS) -> str:
    """The text that the script becomes, for tests that look at a few lines of it."""
    result = _migrated(source, settings)
    assert result.status is Status.MIGRATED, result.reason or [note.message for note in result.notes]
    return result.after.decode()


def unchanged(source: str, settings: Settings = DEFAULTS) -> str:
    """The script stays as it is, to the byte; the reason that is given for it."""
    result = _migrated(source, settings)
    assert result.status is Status.UNCHANGED, result.after.decode()
    assert result.after == result.before
    return result.reason


def noted(source: str, code: str, settings: Settings = DEFAULTS) -> str:
    """Something is said under this code; the message."""
    result = _migrated(source, settings)
    messages = [note.message for note in result.notes if note.code == code]
    assert messages, f"no {code} among {[(note.code, note.message) for note in result.notes]}"
    return messages[0]


def notes(source: str, settings: Settings = DEFAULTS) -> list[str]:
    """All that is said without a change."""
    return [note.message for note in _migrated(source, settings).notes]


def _migrated(source: str, settings: Settings) -> FileResult:
    (result,) = migrate([Source.from_bytes(Path("train.py"), dedent(source).lstrip("\n").encode())], settings)
    assert result.status is not Status.FAILED, result.reason
    return result
