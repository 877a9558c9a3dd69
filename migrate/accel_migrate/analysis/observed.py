"""Facts of a run as facts of variables: taken only where the code does not tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.project import Project
from accel_migrate.analysis.scopes import Module, Scope, Variable
from accel_migrate.facts import Facts, Place


@dataclass(frozen=True, eq=False)
class Observed:
    """What a variable held in a run."""

    variable: Variable
    kind: str
    times: int
    over: frozenset[Variable]  # models that an optimizer updates


def observed_in(project: Project, facts: Facts) -> Iterator[Observed]:
    """What a run showed of the variables of these files."""
    modules = {module.source.path: module for module in project.modules}
    scopes = {path: _scopes(module) for path, module in modules.items()}

    def variable(place: Place) -> Variable | None:
        return _variable(modules[place.file], scopes[place.file], place) if place.file in modules else None

    for path in modules:
        for fact in facts.of(path):
            held = variable(fact.place)
            if held is not None:
                over = frozenset(model for place in fact.over if (model := variable(place)) is not None)
                yield Observed(held, fact.kind, fact.times, over)


def _scopes(module: Module) -> dict[int, Scope]:
    """Functions by the line at which they begin, decorators included; the file itself is at line 0."""
    found = {0: module.root}
    for node, scope in module.functions.items():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[min([node.lineno, *[each.lineno for each in node.decorator_list]])] = scope
    return found


def _variable(module: Module, scopes: dict[int, Scope], place: Place) -> Variable | None:
    scope = scopes.get(place.line)
    if scope is None:
        return None
    first, dot, rest = place.name.partition(".")
    if dot and scope.owner_class is not None and first == scope.self_name:
        return Variable(scope.owner_class, f"self.{rest}")
    root = module.resolve(first, scope)
    if root is None or first in module.imports or place.name == scope.self_name:
        return None
    return Variable(root.scope, place.name)
