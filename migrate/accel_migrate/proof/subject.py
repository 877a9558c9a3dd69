"""What is to be proven, out of what the user named: the files before and after, and how they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_migrate.document import document
from accel_migrate.errors import MigrateError
from accel_migrate.outcome import Outcome, shown
from accel_migrate.plan import Status
from accel_migrate.proof.blame import Texts
from accel_migrate.proof.prove import Subject
from accel_migrate.proof.runs import Target
from accel_migrate.proof.scratch import Project


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the user says that it is run: a module, or a script that is named or comes first in the arguments."""

    paths: tuple[Path, ...]
    arguments: tuple[str, ...]
    current: Path
    module: str | None = None

    @property
    def script(self) -> Path | None:
        if self.module is not None:
            return None
        first = self.current / self.paths[0]
        if first.is_dir() and not self.arguments:
            raise MigrateError(f"{self.paths[0]} is a folder; say what to run: -m package.module, or -- script.py")
        return self.current / self.arguments[0] if first.is_dir() else first

    @property
    def rest(self) -> tuple[str, ...]:
        named_in_arguments = self.module is None and (self.current / self.paths[0]).is_dir()
        return self.arguments[1:] if named_in_arguments else self.arguments


def paths_of(module: str | None, current: Path) -> tuple[Path, ...]:
    """The package of a module that is named alone, or its one file."""
    top = (module or "").partition(".")[0]
    for candidate in (Path(top), Path("src", top), Path(f"{top}.py")):
        if (current / candidate).exists():
            return (candidate,)
    raise MigrateError(f"there is no {top} in this folder; name the files of {module} beside -m")


def project_of(wanted: Wanted, data: Sequence[Path]) -> Project:
    """The repository around the current folder, or that folder alone; a script elsewhere brings its own folder."""
    start = wanted.current
    script = wanted.script
    if script is not None and not script.is_relative_to(start):
        start = script.parent
    linked = tuple(start / path for path in data)
    for root in (_repository(start), start):
        project = Project(root, linked)
        try:
            project.check_size()
        except MigrateError:
            if root == start:
                raise
            continue
        return project
    raise AssertionError("the folder itself is always tried")


def _repository(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def subject(wanted: Wanted, outcomes: Sequence[Outcome], project: Project) -> Subject:
    """The files that a rewrite changes, in the places where they run."""
    migrated = [outcome for outcome in outcomes if outcome.status is Status.MIGRATED]
    texts, before, after = [], {}, {}
    for outcome in migrated:
        place = runnable(outcome.path)
        old, new = (document(outcome.path, data).source for data in (outcome.before, outcome.after))
        texts.append(Texts(outcome, place.relative_to(project.root).as_posix(), old.text, new.text))
        after[place] = new.data
        if place != outcome.path:
            before[place] = old.data
    name = wanted.module or shown(wanted.script or wanted.current, wanted.current)
    return Subject(name, target_of(wanted, project), tuple(texts), before, after)


def target_of(wanted: Wanted, project: Project) -> Target:
    """How it is run, seen from the project."""
    script = wanted.script
    if script is None:
        assert wanted.module is not None
        folder = wanted.current.relative_to(project.root).as_posix()
        return Target(wanted.module, folder, is_module=True, arguments=wanted.rest)
    start = wanted.current if script.is_relative_to(wanted.current) else script.parent
    relative = runnable(script).relative_to(start)
    return Target(str(relative), start.relative_to(project.root).as_posix(), arguments=wanted.rest)


def runnable(path: Path) -> Path:
    """Where the program of a file runs: a notebook is run as a script beside it."""
    return path.with_name(f"{path.stem}_notebook.py") if path.suffix == ".ipynb" else path
