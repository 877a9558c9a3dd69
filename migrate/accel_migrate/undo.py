"""Remembers what in-place runs replaced and noted, and puts it back while nobody has edited the files since."""

from __future__ import annotations

import json
import os
import sys
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from platformdirs import user_state_path

from accel_migrate.write import Rewrite, WriteError, write_together, write_whole

RUNS_KEPT = 50  # for each folder with files that were rewritten: runs elsewhere cost it nothing
DAYS_KEPT = 90


def state_folder() -> Path:
    return user_state_path("accel-migrate", appauthor=False) / "runs"


class Journal:
    """The record of one run: a line per file, on disk before the file is replaced, so that a kill loses nothing.

    Files of one folder are recorded in a file named by the run and that folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = f"{time.time_ns():020}-{os.getpid()}"
        self.problem = ""  # why --undo will not know this run

    def record(self, rewrites: Iterable[Rewrite], notes: Mapping[Path, Sequence[str]]) -> None:
        """Keep what the rewrites replace, with the notes on each file as they were printed, without its name."""
        entries = [
            _Entry(each.path, each.before, sha256(each.after).hexdigest(), tuple(notes.get(each.path, ())))
            for each in rewrites
        ]
        for parent in {entry.path.parent for entry in entries}:
            path = self.folder / f"{self.run}-{sha256(os.fsencode(parent)).hexdigest()[:16]}.jsonl"
            try:
                _append(path, [entry for entry in entries if entry.path.parent == parent])
            except OSError as error:
                self.problem = f"{path} cannot be written ({error.strerror or error})"

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        """Forget the oldest runs of each folder, and tell if this one could not be recorded."""
        oldest_kept = time.time_ns() - DAYS_KEPT * 24 * 3600 * 10**9
        runs: Counter[str] = Counter()
        for path in _newest_first(self.folder):
            written, _, parent = (*path.stem.split("-"), "")[:3]  # older versions named no folder
            runs[parent] += 1
            if runs[parent] > RUNS_KEPT or int(written) < oldest_kept:
                path.unlink(missing_ok=True)
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
    for run in _runs(folder, current):
        outcomes = {entry: _restore(entry) for entries in run.values() for entry in _below(current, entries)}
        for journal, entries in run.items():
            _forget(journal, [entry for entry in entries if entry not in outcomes or outcomes[entry].problem])
        return sorted(outcomes.values(), key=lambda outcome: outcome.path)
    return []


def notes(current: Path, folder: Path) -> dict[Path, tuple[str, ...]]:
    """The notes of the last run below `current`, for each file that it changed there."""
    for run in _runs(folder, current):
        here = [entry for entries in run.values() for entry in _below(current, entries)]
        return {entry.path: entry.notes for entry in sorted(here, key=lambda entry: entry.path)}
    return {}


def _runs(folder: Path, current: Path) -> Iterator[dict[Path, list[_Entry]]]:
    """The runs that changed files below `current`, newest first: what each of its journals holds."""
    for _, journals in groupby(_newest_first(folder), lambda path: path.stem.split("-")[:2]):
        run = {journal: list(_entries(journal)) for journal in journals}
        if any(_below(current, entries) for entries in run.values()):
            yield run


def _below(current: Path, entries: Sequence[_Entry]) -> list[_Entry]:
    return [entry for entry in entries if entry.path.is_relative_to(current)]


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


def _append(journal: Path, entries: Sequence[_Entry]) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with journal.open("ab") as file:
        journal.chmod(0o600)  # it holds other people's source code
        file.write(b"".join(entry.line() for entry in entries))
        file.flush()
        os.fsync(file.fileno())


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
