"""Names of files that nobody has read, what a script does by them, and trainings on what comes from there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, CallGraph, passes_through
from accel_migrate.analysis.values.sources import MOST, Place
from accel_migrate.flow.closure import closure
from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.nodes import is_call_of
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module


def is_unseen(project: Program, module: Module, node: ast.expr) -> bool:
    """Whether a name comes from a file or a package that is neither given nor known, or from a file that does not set it."""
    dotted = module.qualified(node)
    if dotted is None or is_library(dotted) or project.imported_module(module, dotted) is not None:
        return False
    owner, _, name = dotted.rpartition(".")
    file = project.imported_module(module, owner) if owner.strip(".") else None
    return file is None or name not in file.root.bindings


def unread_batches(graph: CallGraph, backwards: Sequence[Backward]) -> ast.expr | None:
    """What a loop that trains goes through, where that comes from a file that nobody has read."""
    for module in graph.roles.project.modules:
        for loop in module.walk(module.tree, ast.For, ast.AsyncFor):
            if graph.runs_any(module, loop, backwards) and _is_unread(graph, module, loop.iter):
                return gone_through(module, loop.iter)
    return None


def _is_unread(graph: CallGraph, module: Module, node: ast.expr) -> bool:
    def steps(place: Place) -> Iterator[Place]:
        owner, part = place[0], gone_through(*place)
        variable = owner.variable(part)
        if is_call_of(part, "zip"):
            yield from ((owner, argument) for argument in part.args)
        elif variable is not None and owner.bindings(variable):
            bound = [b for b in owner.bindings(variable) if b.kind in ("assign", "parameter")]
            yield from graph.bound_to(variable, bound)
        elif isinstance(part, ast.Call | ast.Subscript | ast.Attribute):
            yield owner, part.func if isinstance(part, ast.Call) else part.value

    found = closure([(module, node)], steps, MOST)
    return any(is_unseen(graph.roles.project, owner, gone_through(owner, part)) for owner, part in found)


def gone_through(module: Module, node: ast.expr) -> ast.expr:
    """The `batches` of `enumerate(tqdm(batches))`."""
    while isinstance(node, ast.Call) and passes_through(module, node):
        node = node.args[0]
    return node


@dataclass(frozen=True, eq=False)
class Unseen:
    module: Module
    node: ast.AST  # where it is used
    name: str  # as people know it: `build()`
