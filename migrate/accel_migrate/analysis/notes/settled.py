"""Conditions that have one answer in a project: `if rate is None:` where no call gives a rate."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.program import default_of
from accel_migrate.flow.scopes import Module


def settled(graph: CallGraph, module: Module, test: ast.expr) -> bool | None:
    """Whether a condition on a parameter holds, whoever calls; None where that differs, or is not known."""
    asked, expected = test, None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
        if not isinstance(test.comparators[0], ast.Constant) or test.comparators[0].value is not None:
            return None
        asked, expected = test.left, isinstance(test.ops[0], ast.Is)
    values = _values(graph, module, asked)
    if not values or not all(isinstance(value, ast.Constant) for value in values):
        return None
    constants = [value.value for value in values if isinstance(value, ast.Constant)]
    answers = {bool(each) if expected is None else (each is None) == expected for each in constants}
    return answers.pop() if len(answers) == 1 else None


def _values(graph: CallGraph, module: Module, node: ast.expr) -> list[ast.expr]:
    """What a parameter that is never set anew may hold: what calls give, and the default where one gives nothing."""
    variable = module.variable(node) if isinstance(node, ast.Name) else None
    if variable is None or [binding.kind for binding in module.bindings(variable)] != ["parameter"]:
        return []
    handed = [value for _, value in graph.handed(variable)]
    function = variable.scope.node
    calls = [call for _, call in graph.all_sites.get(function, ())]  # type: ignore[call-overload]
    unpacks = any(
        any(isinstance(argument, ast.Starred) for argument in call.args) or any(k.arg is None for k in call.keywords)
        for call in calls
    )
    default = default_of(function, variable.name) if calls and not unpacks else None
    if default is None or len(handed) == len(calls):
        return handed if len(handed) == len(calls) else []
    return [*handed, default]
