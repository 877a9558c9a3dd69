"""Conditions that have one answer in a project: `if rate is None:` where no call gives a rate."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Sites, given_by
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Program, default_of
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function, Module

_DEPTH = 5
_ASKS_OF_CLASS = ("super", "isinstance", "issubclass")
_PLAIN = ("staticmethod", "classmethod")


def settled(graph: CallGraph, module: Module, test: ast.expr, sites: Sites | None = None) -> bool | None:
    """Whether a condition on a parameter holds, whoever calls, or in some calls; None where that differs, or is not known."""
    asked, compared, equal = test, None, True
    match test:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            asked, compared, equal = test.left, test.comparators[0], isinstance(test.ops[0], ast.Is)
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant()]):
            asked, compared, equal = test.left, test.comparators[0], isinstance(test.ops[0], ast.Eq)
    values = _values(graph, module, asked, sites)
    if not values or not all(isinstance(value, ast.Constant) for value in values):
        return None
    constants = [value.value for value in values if isinstance(value, ast.Constant)]
    answers = {
        bool(each) if not isinstance(compared, ast.Constant) else (each == compared.value) is equal
        for each in constants
    }
    return answers.pop() if len(answers) == 1 else None


def may_come_about(graph: CallGraph, module: Module, node: ast.AST, sites: Sites | None = None) -> bool:
    """Whether no condition above a node is settled the other way."""
    branches = module.branches(node, beyond=sites is None)
    return not any(settled(graph, module, choice.test, sites) is (not holds) for choice, holds in branches)


def may_be(graph: CallGraph, module: Module, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What an expression may stand for, without what settled conditions leave out."""
    parts: list[ast.expr]
    if isinstance(node, ast.IfExp):
        holds = settled(graph, module, node.test)
        parts = [node.body] * (holds is not False) + [node.orelse] * (holds is not True)
    else:
        named = reaching(module, node) if isinstance(node, ast.Name) else []
        bound = [b for b in named if may_come_about(graph, module, b.statement)]
        parts = [b.whole for b in bound if b.whole is not None]
        if not bound or len(parts) < len(bound) or depth == _DEPTH:
            return _values(graph, module, node) or [node]
    return [each for part in parts for each in may_be(graph, module, part, depth + 1)]


def _values(graph: CallGraph, module: Module, node: ast.expr, sites: Sites | None = None) -> list[ast.expr]:
    """What a parameter that is never set anew may hold: what calls give, and the default where one gives nothing."""
    variable = module.variable(node) if isinstance(node, ast.Name) else None
    if variable is None or [binding.kind for binding in module.bindings(variable)] != ["parameter"]:
        return []
    function = variable.scope.node
    if not isinstance(function, Function) or _is_called_by_others(variable.scope.module, function):
        return []
    named = variable.scope.parent if variable.scope.name == "__init__" else variable.scope
    if sites is None and named is not None and named.node in _values_themselves(graph.roles.project):
        return []  # who is handed it may call it otherwise
    made = given_by(graph.sites if sites is None else sites, variable)
    handed = [value for _, _, value in made if value is not None]
    calls = [call for _, call in (graph.all_sites if sites is None else sites).get(function, ())]
    unpacks = any(
        any(isinstance(argument, ast.Starred) for argument in call.args) or any(k.arg is None for k in call.keywords)
        for call in calls
    )
    default = default_of(function, variable.name) if calls and not unpacks else None
    if default is None or len(handed) == len(calls):
        return handed if len(handed) == len(calls) else []
    return [*handed, default]


def _is_called_by_others(module: Module, function: Function) -> bool:
    """Whether a decorator may hand over what no call shows: `@click.command()`."""
    names = [module.full_name(each) for each in getattr(function, "decorator_list", ())]
    return any(name not in _PLAIN and not name.startswith("torch.") for name in names)


@once
def _values_themselves(project: Program) -> set[ast.AST]:
    """The functions and classes that are handed on or kept, and not only called or built on."""
    found: set[ast.AST] = set()
    for module in project.modules:
        for node in module.walk(module.tree, ast.Name, ast.Attribute):
            above = module.parents[node]
            called = isinstance(above, ast.Call) and (node is above.func or called_name(above) in _ASKS_OF_CLASS)
            if not called and not isinstance(above, ast.ClassDef | ast.arg | Function | ast.AnnAssign | ast.Attribute):
                target = project.definition(module, node)
                found |= {target.node} if target is not None else set()
    return found
