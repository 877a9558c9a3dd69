"""Which files a request means: named files and notebooks, and what lies in a folder without what git or habit hides."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accel_migrate.outcome import Outcome, shown
from accel_migrate.plan import Status

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".py", ".ipynb")
# Folders of packages and caches; environments are known by what they hold, whatever their name.
NEVER_ENTERED = frozenset({"__pycache__", "__pypackages__", "node_modules", "site-packages"})
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True, slots=True)
class Found:
    """One file to look at. `root` is the folder that was named, or the file's own."""

    path: Path
    root: Path
    named: bool


@dataclass(frozen=True, slots=True)
class Discovery:
    files: tuple[Found, ...]
    problems: tuple[Outcome, ...]  # paths that cannot be served, and links that were not followed


def discover(paths: Sequence[Path], exclude: Sequence[str], current: Path) -> Discovery:
    """The files of a request, each once and sorted; a path that is named is never excluded."""
    files: dict[Path, Found] = {}
    problems: list[Outcome] = []

    def refuse(path: Path, status: Status, reason: str) -> None:
        problems.append(Outcome(path, shown(path, current), status, reason))

    def take(path: Path) -> None:
        if path.is_symlink() and not path.is_dir():
            refuse(path, Status.FAILED, f"is a symbolic link to {path.readlink()}; name that file instead")
        elif path.is_dir():
            take_folder(path)
        elif path.is_file():
            files[path] = Found(path, path.parent, named=True)
        elif path.exists():
            refuse(path, Status.FAILED, "is not a regular file; name a Python file, a notebook or a folder")
        else:
            refuse(path, Status.FAILED, "does not exist; check the path")

    def take_folder(root: Path) -> None:
        found = list(_inside(root, _spec(exclude), unreadable))
        inside = [file for file in found if not file.is_symlink()]
        for link in (file for file in found if _leaves(file, root)):
            refuse(link, Status.SKIPPED, f"is a symbolic link out of {shown(root, current)}; left alone")
        if not inside:
            refuse(root, Status.FAILED, "holds no Python file or notebook that is not hidden or ignored")
        for file in inside:
            files.setdefault(file, Found(file, root, named=False))

    def unreadable(error: OSError) -> None:
        refuse(Path(error.filename), Status.FAILED, f"cannot be read: {error.strerror}")

    for given in paths:
        try:
            take(Path(os.path.normpath(current / given)))
        except OSError as error:
            unreadable(error)
    return Discovery(tuple(files[path] for path in sorted(files)), tuple(problems))


def _leaves(link: Path, root: Path) -> bool:
    return link.is_symlink() and not link.resolve().is_relative_to(root.resolve())


def _inside(root: Path, exclude: GitIgnoreSpec, unreadable: Callable[[OSError], None]) -> Iterator[Path]:
    """Candidate files below a folder, links to files included, in no order."""
    ignores = {root: _ignores_above(root)}
    for name, folders, files in os.walk(root, onerror=unreadable):
        folder = Path(name)
        rules = ignores.pop(folder) + _own_ignores(folder)
        folders[:] = [
            child
            for child in folders
            if not _is_hidden_by_habit(folder / child)
            and not _is_ignored(folder / child, rules, is_folder=True)
            and not exclude.match_file(f"{(folder / child).relative_to(root).as_posix()}/")
        ]
        ignores.update((folder / child, rules) for child in folders)
        for child in files:
            path = folder / child
            if (
                path.suffix in SUFFIXES
                and not child.startswith(".")
                and not _is_ignored(path, rules, is_folder=False)
                and not exclude.match_file(path.relative_to(root).as_posix())
            ):
                yield path


def _is_hidden_by_habit(folder: Path) -> bool:
    return (
        folder.name.startswith(".")
        or folder.name in NEVER_ENTERED
        or folder.is_symlink()
        or any((folder / mark).exists() for mark in ENVIRONMENT_MARKS)
    )


Ignores = tuple[tuple[Path, "GitIgnoreSpec"], ...]  # from the outermost folder inwards


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # only where a folder is named

    return GitIgnoreSpec.from_lines(lines)


def _own_ignores(folder: Path) -> Ignores:
    file = folder / ".gitignore"
    if not file.is_file():
        return ()
    lines = file.read_text("utf-8", "replace").splitlines()
    return ((folder, _spec(line for line in lines if _is_pattern(line))),)


def _is_pattern(line: str) -> bool:
    """A line that no file can match, such as `[3-0]` or a lone `!`, ignores none."""
    try:
        _spec([line])
    except (re.error, ValueError):
        return False
    return True


def _ignores_above(root: Path) -> Ignores:
    """The .gitignore files between the repository's root and this folder, itself left out."""
    above: Ignores = ()
    for folder in (root, *root.parents):
        if folder != root:
            above = _own_ignores(folder) + above
        if (folder / ".git").exists():
            return above
    return ()


def _is_ignored(path: Path, rules: Ignores, *, is_folder: bool) -> bool:
    """As git decides: the innermost file that says something about the path wins."""
    for folder, spec in reversed(rules):
        name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
        verdict = spec.check_file(name).include
        if verdict is not None:
            return verdict
    return False
