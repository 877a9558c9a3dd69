"""The files of a project as one program: what their names mean from file to file."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from accel_migrate.flow.lookup import import_roots
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.star_imports import spell_out

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*every, *[a for a in (arguments.vararg, arguments.kwarg) if a is not None]]


def default_of(function: ast.AST, name: str) -> ast.expr | None:
    """The default of a parameter, where it has one."""
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in reversed(positional)], reversed(arguments.defaults)))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None}
    return defaults.get(name)


class Program:
    """All files together; a name that is imported from one of them leads there."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.files = list(modules)
        self._by_name: dict[str, list[Module]] = {}
        for file in self.files:
            parts = file.path.with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            for first in range(len(parts)):  # `pkg.engine` and `engine` may both mean pkg/engine.py
                self._by_name.setdefault(".".join(parts[first:]), []).append(file)
        spell_out(self.files, self._file)

    def imported(self, file: Module, name: str) -> tuple[Module, str | None] | None:
        """The file, and the name in it, that an imported name of another file stands for."""
        dotted = file.imports.get(name)
        return self.locate(file, dotted) if dotted else None

    def _file(self, file: Module, dotted: str) -> Module | None:
        found = self.locate(file, dotted)
        return found[0] if found is not None and found[1] is None else None

    def locate(self, file: Module, dotted: str) -> tuple[Module, str | None] | None:
        """The file of the project that a dotted name as `file` writes it leads to, and what is named in it."""
        level = len(dotted) - len(dotted.lstrip("."))
        rest = dotted.lstrip(".")
        if level:
            folder = file.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            rest = ".".join([*folder.parts, *([rest] if rest else [])])
        if rest in self._by_name:
            return self._nearest(file, rest), None
        module, _, name = rest.rpartition(".")
        return (self._nearest(file, module), name) if module in self._by_name and name else None

    def _nearest(self, file: Module, dotted: str) -> Module:
        """Of several files of one name, the one that Python finds first from the importing file."""
        found = self._by_name[dotted]
        if len(found) == 1:
            return found[0]
        inside = dotted.count(".")
        by_root = {_module_path(each).parents[inside]: each for each in reversed(found)}
        return next((by_root[root] for root in import_roots(file.path) if root in by_root), found[0])


def _module_path(file: Module) -> Path:
    """The path of a file as a module: that of its folder for an `__init__.py`."""
    return file.path.parent if file.path.name == "__init__.py" else file.path
