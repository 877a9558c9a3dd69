"""Functions that save, called by the main process alone: every process calls them from now on, and one goes on to write.

`if rank == 0: save(model)` becomes `save(model)`, and `save` collects the weights before all but one process return.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import conjuncts
from accel_migrate.flow.scopes import Function, Module


@dataclass(frozen=True, eq=False)
class Lifted:
    """A guard whose `parts` go, those that ask for the main process; all of its test, or some of what it asks together."""

    module: Module
    guard: ast.If
    parts: tuple[ast.expr, ...]

    @property
    def is_whole(self) -> bool:
        return self.parts == (self.guard.test,)


def lifted_guards(flow: RankFlow, graph: CallGraph, function: Function) -> list[Lifted] | None:
    """The guards around all calls of a function; None where a call is not alone under one, or its result is used."""
    found = []
    for module, call in graph.sites.get(function, ()):
        if flow.some_call(module.scope(call).function):
            return None
        statement = module.statement(call)
        guard = module.parents[statement]
        if not isinstance(statement, ast.Expr) or statement.value is not call or not isinstance(guard, ast.If):
            return None
        parts = main_parts(flow, module, guard)
        if guard.body != [statement] or guard.orelse or flow.guard(module, call) is not guard or not parts:
            return None
        found.append(Lifted(module, guard, parts))
    return found or None


def main_parts(flow: RankFlow, module: Module, guard: ast.If) -> tuple[ast.expr, ...]:
    """What of a guard's test asks for the main process; empty if some of it depends on the rank in another way."""
    parts = conjuncts(guard.test)
    asking = [part for part in parts if flow.depends(module, part)]
    if not all(flow.picks_main(module, part) for part in asking):
        return ()
    return tuple(asking) if len(asking) < len(parts) else (guard.test,)
