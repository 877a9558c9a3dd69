"""Which files of a project another one may use, judged by its import statements alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from accel_migrate.errors import SourceError
from accel_migrate.flow.nodes import walk
from accel_migrate.source import Source


def used_by(users: Sequence[Source], files: Sequence[Source]) -> list[Source]:
    """The files that these import, or that those import in turn; by the last part of a name, so rather one too many."""
    named: dict[str, list[Source]] = {}
    for file in files:
        named.setdefault(module_name(file), []).append(file)
    return _closure(users, lambda user: [file for name in set(_names(user)) for file in named.get(name, ())])


def users_of(used: Sequence[Source], files: Sequence[Source]) -> list[Source]:
    """The files that import one of these, or import one that does."""
    importers: dict[str, list[Source]] = {}
    for file in files:
        for name in set(_names(file)):
            importers.setdefault(name, []).append(file)
    return _closure(used, lambda each: importers.get(module_name(each), []))


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
