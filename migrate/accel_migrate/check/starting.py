"""Which scripts make an Accelerator when they are started: what only others run concerns it as little as they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

if TYPE_CHECKING:
    from accel_migrate.check.evidence import Side


def scripts_that_run(side: Side, file: Module, node: ast.AST) -> set[Module]:
    """The files by which a node may run, each started as a script; under its main guard it runs by its own file alone."""
    found: set[Module] = set()
    waiting, seen = [(file, node)], set[ast.AST]()
    while waiting:
        at, inner = waiting.pop()
        function = at.scope(inner).frame.node
        if not isinstance(function, Function):
            found |= {at} if under_main(at, inner) else _importing(side, at)
        elif function not in seen:
            seen.add(function)
            named = list(_mentions(side, at, function))
            waiting += named
            found |= _importing(side, at) if not named else set()
    return found or _importing(side, file)  # functions that only name each other: whoever starts the file may call them


def _importing(side: Side, file: Module) -> set[Module]:
    return {each for each in side.files if file in side.imported_by([each])}


def _mentions(side: Side, file: Module, function: Function) -> Iterator[tuple[Module, ast.AST]]:
    """Whatever may mean a function outside of itself, called or not; for a constructor, its class."""
    name = getattr(function, "name", "")
    owner = file.scopes[function].parent
    if owner is not None and owner.is_class and name.startswith("__"):
        name = getattr(owner.node, "name", "")
    for other in side.files:
        there = side.program.imported(other, name) if name in other.imports else None
        imports = there is not None and there[0] is file
        for node in other.walk(other.tree, ast.Name, ast.Attribute):
            if (node.id if isinstance(node, ast.Name) else node.attr) != name or function in other.ancestors(node):
                continue
            if other is file or imports or (isinstance(node, ast.Attribute) and file in side.imported_by([other])):
                yield other, node
