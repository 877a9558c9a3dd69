"""Which attributes may be the same: `self.loader` is that of its own class, `trainer.loader` that of any object."""

from __future__ import annotations

import ast

from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module, Scope

_FROM_OTHERS = frozenset(["__dict__", "__getattr__", "__getattribute__", "vars", "setattr", "getattr"])


def self_of(file: Module, node: ast.expr) -> Scope | None:
    """The class whose own instance a name is: the first parameter of a method."""
    if not isinstance(node, ast.Name):
        return None
    scope = file.scope(node)
    owner, binder = scope.owner_class, file.binder(node.id, scope)
    is_own = binder is not None and binder.is_function and binder.parent is owner and binder.instance == node.id
    return owner if is_own else None


class Families:
    """The classes of a program, with those that they share objects with: what they are derived from, and their heirs."""

    def __init__(self, program: Program) -> None:
        self._of: dict[ast.AST, list[ast.ClassDef]] = {}
        self._open: set[ast.ClassDef] = set()
        for file in program.modules:
            for node in file.walk(file.tree, ast.ClassDef):
                for base in node.bases:
                    found = program.definition(file, base)
                    if found is not None and isinstance(found.node, ast.ClassDef):
                        self._join(node, found.node)
                    elif not _is_of_library(program, file, base):
                        self._open.add(node)  # a class of the program, perhaps, and it is not known which
                if any(_name(part) in _FROM_OTHERS for part in walk(node)):
                    self._open.add(node)
                self._of.setdefault(node, [node])

    def _join(self, one: ast.ClassDef, other: ast.ClassDef) -> None:
        own, more = self._of.setdefault(one, [one]), self._of.setdefault(other, [other])
        if own is not more:
            own += more
            self._of.update(dict.fromkeys(more, own))

    def of(self, owner: ast.AST) -> ast.ClassDef | None:
        """The class that stands for a family; None where its objects may have the attributes of any other."""
        family = self._of[owner]
        return family[0] if self._open.isdisjoint(family) else None


def _is_of_library(program: Program, file: Module, base: ast.expr) -> bool:
    dotted = file.qualified(base)
    if dotted is not None:
        return program.locate(file, dotted) is None
    return isinstance(base, ast.Name) and not file.stars and file.binder(base.id, file.scope(base)) is None


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.FunctionDef():
            return node.name
    return ""
