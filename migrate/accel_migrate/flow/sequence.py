"""Which of two places in one function runs after the other: the control-flow graph says so, not their lines."""

from __future__ import annotations

import ast

from accel_migrate.flow.cfg import Graph, graph_of
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Module

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def follows(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """Whether a run can come to the second after the first, in the same round of each loop around both.

    What is in a statement follows it, and no statement follows itself. False where they are of different functions.
    """
    return _follows(module, module.statement(first), module.statement(second))


@once
def _follows(module: Module, begin: ast.stmt, end: ast.stmt) -> bool:
    graph = _graph_of_both(module, begin, end)
    if graph is None or begin is end or module.holds(end, begin):
        return False
    around = [above for above in module.ancestors(begin) if isinstance(above, _LOOPS) and graph.holds(above)]
    rounds = [loop for loop in around if module.spans(loop.body[0], loop.body[-1], end)]
    return graph.reachable_past(begin, end, rounds) if rounds else graph.reachable(begin, end)


def comes_first(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """Whether the second can follow the first, and the first never the second."""
    return follows(module, first, second) and not follows(module, second, first)


def may_follow(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """Whether a run can ever come to the second after the first, also in a later round, or when another function runs."""
    begin, end = module.statement(first), module.statement(second)
    graph = _graph_of_both(module, begin, end)
    return graph is None or graph.reachable(begin, end)


def _graph_of_both(module: Module, one: ast.stmt, other: ast.stmt) -> Graph | None:
    """The order of the statements of one function, if both are of it."""
    scope, beside = module.scope_of.get(one), module.scope_of.get(other)  # none of a statement of another file
    if scope is None or beside is None or scope.frame is not beside.frame:
        return None
    return graph_of(module.tree, scope.frame.node)  # type: ignore[arg-type]
