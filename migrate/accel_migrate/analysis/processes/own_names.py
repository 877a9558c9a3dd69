"""Names that each process makes for itself, by its clock, by chance or as the first that is free: not the same on all."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.file_calls import sought
from accel_migrate.flow.own_values import OWN, TELLING_TIME
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import may_follow

_FAR_ENOUGH = 200  # expressions


def own_part(roles: Roles, graph: CallGraph, module: Module, name: ast.expr) -> tuple[Module, ast.Call] | None:
    """The call that gives a name a part of this process's own, through variables, parameters and functions."""
    seen: set[ast.AST] = set()
    pending: list[tuple[Module, ast.AST]] = [(module, name)]
    for owner, node in pending:
        if node in seen or len(pending) > _FAR_ENOUGH:
            continue
        seen.add(node)
        for part in owner.walk(node):
            if isinstance(part, ast.Call):
                if _is_own(owner, part):
                    return owner, part
                target = roles.target(owner, part)
                if target is not None:
                    pending += [(target.module, value) for value in target.returned]
            variable = owner.variable(part) if isinstance(part, ast.Name | ast.Attribute) else None
            for binding in owner.bindings(variable):
                assert variable is not None
                free = sought(owner, binding.statement, variable.name)
                if free is not None:
                    return owner, free
                if binding.kind == "parameter":
                    pending += graph.handed(variable)
                elif binding.kind == "assign" and binding.value is not None:
                    if binding.statement is owner.statement(part) or may_follow(owner, binding.statement, part):
                        pending.append((owner, binding.value))
    return None


def _is_own(module: Module, call: ast.Call) -> bool:
    told = isinstance(call.func, ast.Attribute) and call.func.attr in TELLING_TIME
    return told or module.qualified(call.func) in OWN
