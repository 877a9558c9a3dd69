"""What an expression is made of, followed through names, dictionaries, lists and the calls that hand it over."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import all_arguments, is_call_of
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
        variable = owner.variable(part) if isinstance(part, ast.Name | ast.Attribute) else None
        if variable is not None:
            pending += _bound(graph, owner, variable)


def _inside(module: Module, node: ast.expr) -> list[Place]:
    if isinstance(node, ast.Dict):
        return [(module, value) for value in node.values]
    if isinstance(node, ast.Tuple | ast.List):
        return [(module, value) for value in node.elts]
    if isinstance(node, ast.ListComp | ast.DictComp):
        return [(module, node.value if isinstance(node, ast.DictComp) else node.elt)]
    if isinstance(node, ast.IfExp):
        return [(module, node.body), (module, node.orelse)]
    if is_call_of(node, "dict"):
        return [(module, value) for value in all_arguments(node)]
    return []


def _bound(graph: CallGraph, module: Module, variable: Variable) -> list[Place]:
    found: list[Place] = []
    for binding in module.bindings(variable):
        if binding.kind == "assign" and binding.value is not None and not binding.path:
            found.append((module, binding.value))
        elif binding.kind == "parameter":
            found += graph.handed(variable)
    return [*found, *[(module, value) for value in module.items_set.get(variable, ())]]  # `state["model"] = model`
