"""Which files of a project another one may use, judged by its import statements alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from accel_migrate.errors import SourceError
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.once import once
from accel_migrate.source import Source


def used_by(users: Sequence[Source], files: Sequence[Source]) -> list[Source]:
    """The files that these import, or that those import in turn; by the last part of a name, so rather one too many."""
    named: dict[str, list[Source]] = {}
    for file in files:
        named.setdefault(module_name(file), []).append(file)
    return _closure(users, lambda user: [file for name in set(_names(user)) for file in named.get(name, ())])


class Imports:
    """Which files of a project run together, by the whole names of the modules that they import."""

    def __init__(self, files: Sequence[Source]) -> None:
        several = files if len(files) > 1 else ()
        named: dict[str, list[tuple[Source, tuple[str, ...]]]] = {}
        for file in several:
            parts = _module_parts(file)
            named.setdefault(parts[-1] if parts else "", []).append((file, parts))
        self._imported = {file.path: _imported(file, named) for file in several}
        self._importers: dict[Path, list[Source]] = {}
        for file in several:
            for other in self._imported[file.path]:
                self._importers.setdefault(other.path, []).append(file)

    def together(self, files: Sequence[Source]) -> set[Path]:
        """These files, those that import them, and what all of those import."""
        entries = [*files, *_closure(files, lambda each: self._importers.get(each.path, []))]
        imported = _closure(entries, lambda each: self._imported.get(each.path, []))
        return {each.path for each in (*entries, *imported)}


def _imported(user: Source, named: Mapping[str, list[tuple[Source, tuple[str, ...]]]]) -> list[Source]:
    """The files that one imports; of several that a name fits those beside or above it, if there are any.

    `named` has all files by the last part of their names.
    """
    found: dict[Path, Source] = {}
    around = user.path.parent.parts
    for level, parts in _dotted_names(user):
        if level:
            folder = user.path.parents[level - 1] if level <= len(user.path.parents) else user.path.parent
            whole = (*folder.parts, *parts)
            fits = [file for file, name in named.get(whole[-1] if whole else "", ()) if name == whole]
        else:
            known = [(file, name) for file, name in named.get(parts[-1], ()) if name[-len(parts) :] == parts]
            near = [file for file, name in known if (above := name[: -len(parts)]) == around[: len(above)]]
            fits = near or [file for file, _ in known]
        found |= {file.path: file for file in fits if file.path != user.path}
    return list(found.values())


def _module_parts(file: Source) -> tuple[str, ...]:
    return file.path.parent.parts if file.path.name == "__init__.py" else (*file.path.parent.parts, file.path.stem)


def _dotted_names(source: Source) -> frozenset[tuple[int, tuple[str, ...]]]:
    """Every module that a file may import, with those around it: how many folders up, and its name."""
    try:
        return _dotted_in(source.tree)
    except SourceError:
        return frozenset()


@once
def _dotted_in(tree: ast.Module) -> frozenset[tuple[int, tuple[str, ...]]]:
    return frozenset(_dotted(tree))


def _dotted(tree: ast.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    for node in walk(tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module.split(".") if node.module else []
            names = [[*start, alias.name] for alias in node.names]
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        for name in names:
            yield from ((level, tuple(name[:end])) for end in range(1, len(name) + 1))
            if level:
                yield level, ()


def _closure(first: Sequence[Source], next_to: Callable[[Source], list[Source]]) -> list[Source]:
    """What a step leads to from these, and from there in turn."""
    waiting = list(first)
    found: dict[Path, Source] = {}
    for each in waiting:
        new = {file.path: file for file in next_to(each) if file.path not in found}
        found |= new
        waiting += new.values()
    return list(found.values())


def module_name(file: Source) -> str:
    """The name by which a file is imported: that of its folder for an `__init__.py`."""
    return file.path.parent.name if file.path.name == "__init__.py" else file.path.stem


def _names(source: Source) -> Iterator[str]:
    """Every part of every name that a file imports; `ast.walk` holds on a tree of any depth."""
    try:
        nodes = list(walk(source.tree))
    except SourceError:
        return  # what does not parse does not run
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
