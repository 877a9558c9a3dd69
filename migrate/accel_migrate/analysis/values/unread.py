"""Names of files that nobody has read, what a script does by them, and trainings on what comes from there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, CallGraph, passes_through
from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.nodes import is_call_of
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module

_MOST = 50  # places that a thing is followed to


def is_unseen(project: Program, module: Module, node: ast.expr) -> bool:
    """Whether a name comes from a file or a package that is neither given nor known, or from a file that does not set it."""
    dotted = module.qualified(node)
    if dotted is None or is_library(dotted) or project.imported_module(module, dotted) is not None:
        return False
    owner, _, name = dotted.rpartition(".")
    file = project.imported_module(module, owner) if owner.strip(".") else None
    return file is None or name not in file.root.bindings


def unread_batches(graph: CallGraph, backwards: Iterable[Backward]) -> ast.expr | None:
    """What a loop that trains goes through, where that comes from a file that nobody has read."""
    ends = {backward.call for backward in backwards}
    trains = {backward.function for backward in backwards if backward.function is not None}
    for module in graph.roles.project.modules:
        for loop in module.walk(module.tree, ast.For, ast.AsyncFor):
            if any(c in ends for c in module.walk(loop, ast.Call)) or graph.reached_from(loop, module) & trains:
                if _is_unread(graph, module, loop.iter):
                    return _gone_through(module, loop.iter)
    return None


def _is_unread(graph: CallGraph, module: Module, node: ast.expr) -> bool:
    pending = [(module, node)]
    for owner, part in pending:
        part = _gone_through(owner, part)
        if is_call_of(part, "zip"):
            pending += [(owner, argument) for argument in part.args]
            continue
        while (variable := owner.variable(part)) is None or not owner.bindings(variable):
            if not isinstance(part, ast.Call | ast.Subscript | ast.Attribute):
                break
            part = part.func if isinstance(part, ast.Call) else part.value
        if is_unseen(graph.roles.project, owner, part):
            return True
        if variable is not None and len(pending) < _MOST:
            bound = [b for b in owner.bindings(variable) if b.kind in ("assign", "parameter")]
            pending += graph.bound_to(variable, bound)
    return False


def _gone_through(module: Module, node: ast.expr) -> ast.expr:
    """The `batches` of `enumerate(tqdm(batches))`."""
    while isinstance(node, ast.Call) and passes_through(module, node):
        node = node.args[0]
    return node


@dataclass(frozen=True, eq=False)
class Unseen:
    module: Module
    node: ast.AST  # where it is used
    name: str  # as people know it: `build()`
