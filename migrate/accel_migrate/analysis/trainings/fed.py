"""Whether what a statement makes is trained on, or only looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module


def feeds_training(graph: CallGraph, backwards: Iterable[Backward], module: Module, made: ast.stmt) -> bool:
    """Whether what a statement binds may reach a backward pass; True where that is not visible to the analysis."""
    ends = {backward.call for backward in backwards}
    trains = {backward.function for backward in backwards}
    if any(node in ends for node in module.walk(made)):
        return True
    scope = module.scope(made)
    seen: set[ast.stmt] = set()
    pending: list[ast.stmt] = [made]
    loads = [
        node
        for node in module.walk(scope.node, ast.Name)
        if isinstance(node.ctx, ast.Load) and module.scope(node) is scope
    ]
    while pending:
        source = pending.pop()
        if source in seen:
            continue
        seen.add(source)
        if any(isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store) for n in _targets(source)):
            return True
        bound = {n.id for n in _targets(source) if isinstance(n, ast.Name)}
        for load in loads:
            if load.id not in bound or not _holds(module, load, source):
                continue
            use = module.statement(load)
            handed_out = isinstance(use, ast.Return) or any(module.walk(use, ast.Yield, ast.YieldFrom))
            if handed_out or any(node in ends for node in module.walk(use)):
                return True
            if not isinstance(use, ast.For | ast.While | ast.If | ast.With):
                if graph.reached_from(use, module) & trains:
                    return True
            pending.append(use)
    return False


def _targets(statement: ast.stmt) -> list[ast.AST]:
    if isinstance(statement, ast.Assign):
        return [node for target in statement.targets for node in walk(target)]
    if isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For):
        return list(walk(statement.target))
    return []


def _holds(module: Module, load: ast.Name, source: ast.stmt) -> bool:
    return any(b.statement is source for b in reaching(module, load))
