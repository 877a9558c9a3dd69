"""What an expression is made of, followed through names, dictionaries, lists and the calls that hand it over."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import all_arguments, is_call_of, parts_of_value
from accel_migrate.flow.scopes import Module, Variable

Place = tuple[Module, ast.expr]


def contents(graph: CallGraph, module: Module, node: ast.expr) -> Iterator[Place]:
    """Every expression that may be kept in what a node stands for, each with its file."""
    seen: set[ast.expr] = set()
    pending: list[Place] = [(module, node)]
    for owner, part in pending:
        if part in seen or len(pending) > 200:
            continue
        seen.add(part)
        yield owner, part
        pending += _inside(owner, part)
        if (variable := owner.variable(part)) is not None:
            pending += _bound(graph, owner, variable)


def _inside(module: Module, node: ast.expr) -> list[Place]:
    if isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.ListComp | ast.DictComp | ast.IfExp):
        return [(module, part) for part in parts_of_value(node)]
    if is_call_of(node, "dict"):
        return [(module, value) for value in all_arguments(node)]
    return []


def _bound(graph: CallGraph, module: Module, variable: Variable) -> list[Place]:
    own = [b for b in module.bindings(variable) if b.kind == "parameter" or (b.kind == "assign" and not b.path)]
    return [
        *graph.bound_to(variable, own),
        *[(module, value) for value in module.items_set.get(variable, ())],
    ]  # `state["model"] = model`
