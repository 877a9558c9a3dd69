"""Which files of a project another one may use, judged by its import statements alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accel_migrate.errors import SourceError
from accel_migrate.flow.nodes import walk
from accel_migrate.source import Source


def used_by(users: Sequence[Source], files: Sequence[Source]) -> list[Source]:
    """The files that these import, or that those import in turn; by the last part of a name, so rather one too many."""
    waiting = list(users)
    found: list[Source] = []
    for user in waiting:
        names = set(_names(user))
        new = [file for file in files if file not in found and _name(file) in names]
        found += new
        waiting += new
    return found


def users_of(used: Sequence[Source], files: Sequence[Source]) -> list[Source]:
    """The files that import one of these, or import one that does."""
    imports = {id(file): set(_names(file)) for file in files}
    waiting = list(used)
    found: list[Source] = []
    for each in waiting:
        new = [file for file in files if file not in found and _name(each) in imports[id(file)]]
        found += new
        waiting += new
    return found


def _name(file: Source) -> str:
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
