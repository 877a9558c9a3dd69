"""What a run of the script showed of its variables, for the analysis to take where the code does not show it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accel_migrate.errors import MigrateError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A variable: of the function that begins at a line of a file, or of the file itself at line 0."""

    file: Path
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Fact:
    """What a variable held, each time that it was looked at."""

    place: Place
    # model, optimizer, loader, scheduler, scaler, module without weights, frozen model, function, own function, options;
    # or backward pass: the models that its loss was computed through, at its line
    kind: str
    times: int
    over: tuple[Place, ...] = ()  # the models that an optimizer updates, or whose parameters another model holds
    same: tuple[Place, ...] = ()  # the other variables that held this very object; of a function, where it is defined


@dataclass(frozen=True)
class Facts:
    """All that one run showed, with the text that each file had then."""

    facts: tuple[Fact, ...]
    texts: Mapping[Path, str] = field(hash=False)  # a digest of each file

    def of(self, file: Path) -> list[Fact]:
        return [fact for fact in self.facts if fact.place.file == file]

    def fit(self, file: Path, data: bytes) -> bool:
        """Whether a file is as it was in the run, or did not take part: a place is told by its line."""
        return self.texts.get(file, digest(data)) == digest(data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def save(facts: Facts, file: Path) -> bytes:
    """The facts as a file keeps them, with paths as seen from it."""
    folder = file.absolute().parent

    def named(path: Path) -> str:
        return Path(os.path.relpath(path, folder)).as_posix()

    def place(it: Place) -> tuple[str, int, str]:
        return named(it.file), it.line, it.name

    told = [
        {
            "place": place(fact.place),
            "kind": fact.kind,
            "times": fact.times,
            "over": [place(each) for each in fact.over],
            "same": [place(each) for each in fact.same],
        }
        for fact in facts.facts
    ]
    files = {named(path): text for path, text in facts.texts.items()}
    return json.dumps({"version": VERSION, "files": files, "facts": told}, indent=1).encode()


def load(file: Path) -> Facts:
    """Facts that an earlier run kept."""
    folder = file.absolute().parent

    def path(name: str) -> Path:
        return Path(os.path.normpath(folder / name))

    def place(told: tuple[str, int, str]) -> Place:
        return Place(path(told[0]), int(told[1]), str(told[2]))

    try:
        kept = json.loads(file.read_bytes())
        if kept["version"] != VERSION:
            raise MigrateError(f"{file} is of another version of accel-migrate; observe the script again (--observe)")
        facts = [
            Fact(
                place(each["place"]),
                each["kind"],
                each["times"],
                tuple(map(place, each["over"])),
                tuple(map(place, each["same"])),
            )
            for each in kept["facts"]
        ]
        return Facts(tuple(facts), {path(name): text for name, text in kept["files"].items()})
    except OSError as error:
        raise MigrateError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MigrateError(f"{file} holds no facts that --observe kept") from error
