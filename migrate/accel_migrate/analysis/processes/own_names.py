"""Names that each process makes for itself, by its clock, by chance or as the first that is free: not the same on all."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.sources import behind
from accel_migrate.flow.file_calls import sought
from accel_migrate.flow.own_values import OWN, TELLING_TIME
from accel_migrate.flow.scopes import Module


def own_part(graph: CallGraph, module: Module, name: ast.expr) -> tuple[Module, ast.Call] | None:
    """The call that gives a name a part of this process's own, through variables, parameters and functions."""
    for owner, part in behind(graph, module, name):
        if isinstance(part, ast.Call) and _is_own(owner, part):
            return owner, part
        if (variable := owner.variable(part)) is not None:
            for binding in owner.bindings(variable):
                free = sought(owner, binding.statement, variable.name)
                if free is not None:
                    return owner, free
    return None


def _is_own(module: Module, call: ast.Call) -> bool:
    told = isinstance(call.func, ast.Attribute) and call.func.attr in TELLING_TIME
    return told or module.qualified(call.func) in OWN
