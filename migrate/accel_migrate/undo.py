"""Remembers what in-place runs replaced and noted, and puts it back while nobody has edited the files since."""

from __future__ import annotations

import json
import os
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from platformdirs import user_state_path

from accel_migrate.write import Rewrite, WriteError, write_together, write_whole

RUNS_KEPT = 50


def state_folder() -> Path:
    return user_state_path("accel-migrate", appauthor=False) / "runs"


class Journal:
    """The record of one run: a line per file, on disk before the file is replaced, so that a kill loses nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{time.time_ns():020}-{os.getpid()}.jsonl"
        self.problem = ""  # why --undo will not know this run

    def record(self, rewrites: Iterable[Rewrite], notes: Mapping[Path, Sequence[str]]) -> None:
        """Keep what the rewrites replace, with the notes on each file as they were printed, without its name."""
        entries = [
            _Entry(each.path, each.before, sha256(each.after).hexdigest(), tuple(notes.get(each.path, ())))
            for each in rewrites
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.path.open("ab") as file:
                self.path.chmod(0o600)  # it holds other people's source code
                file.write(b"".join(entry.line() for entry in entries))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.problem = f"{self.path} cannot be written ({error.strerror or error})"

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        """Forget the oldest runs, and tell if this one could not be recorded."""
        for old in _newest_first(self.path.parent)[RUNS_KEPT:]:
            old.unlink(missing_ok=True)
        if self.problem:
            print(f"accel-migrate: --undo will not know this run: {self.problem}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    before: bytes
    after: str  # the digest of what the run wrote
    notes: tuple[str, ...] = ()

    def line(self) -> bytes:
        before = b64encode(self.before).decode()
        fields = {"path": str(self.path), "after": self.after, "notes": self.notes, "before": before}
        return json.dumps(fields).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of one file of the run that is undone; `problem` is empty when it is back."""

    path: Path
    problem: str = ""


def undo(current: Path, folder: Path) -> list[Restored]:
    """Restore the files below `current` that the last run there changed; what was edited since stays as it is."""
    for journal in _newest_first(folder):
        entries = list(_entries(journal))
        here = [entry for entry in entries if entry.path.is_relative_to(current)]
        if here:
            outcomes = [_restore(entry) for entry in here]
            back = {outcome.path for outcome in outcomes if not outcome.problem}
            _forget(journal, [entry for entry in entries if entry.path not in back])
            return outcomes
    return []


def notes(current: Path, folder: Path) -> dict[Path, tuple[str, ...]]:
    """The notes of the last run below `current`, for each file that it changed there."""
    for journal in _newest_first(folder):
        here = {entry.path: entry.notes for entry in _entries(journal) if entry.path.is_relative_to(current)}
        if here:
            return here
    return {}


def _restore(entry: _Entry) -> Restored:
    try:
        data = entry.path.read_bytes()
    except OSError as error:
        return Restored(entry.path, f"cannot be read ({error.strerror or error}); left alone")
    if data == entry.before:
        return Restored(entry.path)
    if sha256(data).hexdigest() != entry.after:
        return Restored(entry.path, "was edited since; left as it is")
    try:
        write_together([Rewrite(entry.path, data, entry.before)])
    except WriteError as error:
        return Restored(entry.path, str(error))
    return Restored(entry.path)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"), reverse=True)


def _entries(journal: Path) -> Iterator[_Entry]:
    for line in journal.read_bytes().splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            return  # a kill cut the last line short, before its file was touched
        notes = tuple(fields.get("notes", ()))
        yield _Entry(Path(fields["path"]), b64decode(fields["before"]), fields["after"], notes)


def _forget(journal: Path, remaining: Sequence[_Entry]) -> None:
    if remaining:
        write_whole(journal, b"".join(entry.line() for entry in remaining))
    else:
        journal.unlink()
