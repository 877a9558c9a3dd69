"""Facts of a run as facts of variables: taken only where the code does not show it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accel_migrate.facts import Facts, Place
from accel_migrate.flow.program import Definition, Program
from accel_migrate.flow.scopes import Module, Scope, Variable


@dataclass(frozen=True, eq=False)
class Observed:
    """What a variable held in a run."""

    variable: Variable
    kind: str
    times: int
    over: frozenset[Variable]  # models that an optimizer updates, or that this model holds
    same: tuple[Variable, ...]  # other variables that held the same object
    function: Definition | None  # of the project, that the variable held


BACKWARD = "backward pass"


def backwards_in(project: Program, facts: Facts) -> dict[tuple[Module, int], frozenset[Observed]]:
    """The models that the losses of a line were computed through in a run."""
    modules, scopes = _files(project)
    found = {}
    for path, module in modules.items():
        for fact in facts.of(path):
            if fact.kind == BACKWARD:
                models = {v for place in fact.over if (v := _at(modules, scopes, place))}
                kind = "model that the loss is computed through"
                found[module, fact.place.line] = frozenset(
                    Observed(model, kind, fact.times, frozenset(), (), None) for model in models
                )
    return found


def observed_in(project: Program, facts: Facts) -> Iterator[Observed]:
    """What a run showed of the variables of these files."""
    modules, scopes = _files(project)

    def variable(place: Place) -> Variable | None:
        return _at(modules, scopes, place)

    for path in modules:
        for fact in facts.of(path):
            held = variable(fact.place) if fact.kind != BACKWARD else None
            if held is not None:
                over, same = ([v for place in places if (v := variable(place))] for places in (fact.over, fact.same))
                own = fact.kind == "own function"
                function = (
                    next((d for place in fact.same if (d := _function(modules, scopes, place))), None) if own else None
                )
                yield Observed(held, fact.kind, fact.times, frozenset(over), () if own else tuple(same), function)


_Files = tuple[dict[Path, Module], dict[Path, dict[int, Scope]]]


def _files(project: Program) -> _Files:
    modules = {module.source.path: module for module in project.modules}
    return modules, {path: _scopes(module) for path, module in modules.items()}


def _at(modules: dict[Path, Module], scopes: dict[Path, dict[int, Scope]], place: Place) -> Variable | None:
    return _variable(modules[place.file], scopes[place.file], place) if place.file in modules else None


def _scopes(module: Module) -> dict[int, Scope]:
    """Functions by the line at which they begin, decorators included; the file itself is at line 0."""
    found = {0: module.root}
    for node, scope in module.functions.items():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[min([node.lineno, *[each.lineno for each in node.decorator_list]])] = scope
    return found


def _function(modules: dict[Path, Module], scopes: dict[Path, dict[int, Scope]], place: Place) -> Definition | None:
    scope = scopes[place.file].get(place.line) if place.file in modules else None
    node = scope.node if scope is not None else None
    if isinstance(node, ast.FunctionDef) and node.name == place.name:
        return Definition(modules[place.file], node)
    return None


def _variable(module: Module, scopes: dict[int, Scope], place: Place) -> Variable | None:
    scope = scopes.get(place.line)
    if scope is None:
        return None
    first, dot, rest = place.name.partition(".")
    if dot and scope.owner_class is not None and first == scope.self_name:
        return Variable(scope.owner_class, f"self.{rest}")
    root = module.resolve(first, scope)
    if root is None or module.is_import(root) or place.name == scope.self_name:
        return None
    return Variable(root.scope, place.name)
