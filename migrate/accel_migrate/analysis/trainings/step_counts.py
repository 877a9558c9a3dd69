"""What ends a training: the data, a count of steps, or something that is not understood."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from enum import Enum

from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.sources import behind
from accel_migrate.flow.nodes import is_call_of, unparse
from accel_migrate.flow.scopes import Module

_DEEPEST = 4


class Ended(Enum):
    DATA = "data"  # every epoch goes through the loader once
    COUNT = "count"  # a number of steps is reached
    LENGTH = "length"  # as many epochs as the length of the loader says: a count if that is of one process's shard
    UNKNOWN = "unknown"


def ended_by(
    graph: CallGraph, loop: LoaderLoop, after_prepare: Callable[[Module, ast.AST], bool] | None = None
) -> Ended:
    """What ends a loop over a loader, or what begins it anew; LENGTH as long as nobody knows what is `after_prepare`."""
    module = loop.module
    inside = module.walk(loop.statement)
    counted = {unparse(node.target) for node in inside if isinstance(node, ast.AugAssign) and _is_one(node)}
    counted |= _enumerated(loop.statement)
    alike = {name.rpartition(".")[2] for name in counted}
    left = list(_leaving(module, loop.statement))
    repeated = list(_repeated_by(graph, module, loop.statement))
    around = [p.test for _, p in repeated if isinstance(p, ast.While) and not isinstance(p.test, ast.Constant)]
    if not left and not around:
        lengths = list(_rounds_worked_out(graph, loop))
        if not lengths or after_prepare is None:
            return Ended.LENGTH if lengths else Ended.DATA
        found = {after_prepare(*length) for length in lengths}
        return Ended.UNKNOWN if len(found) > 1 else Ended.COUNT if found == {True} else Ended.DATA
    counts = any(all(_asks_count(test, alike, ast.Or) for test in tests) for tests in left if tests)
    counts = counts or any(_asks_count(test, alike, ast.And) for test in around)
    return Ended.COUNT if counts else Ended.UNKNOWN


def _leaving(module: Module, loop: ast.stmt) -> Iterator[list[ast.expr]]:
    """For each `break` or `return` that leaves a loop, the conditions that must all hold for it."""
    for node in module.walk(loop):
        if not isinstance(node, ast.Break | ast.Return):
            continue
        around = list(module.ancestors(node))
        inner = around[: around.index(loop)]
        if isinstance(node, ast.Break) and any(isinstance(parent, ast.For | ast.While) for parent in inner):
            continue
        if not any(isinstance(parent, ast.FunctionDef | ast.Lambda) for parent in inner):
            yield [parent.test for parent in inner if isinstance(parent, ast.If)]


def _repeated_by(
    graph: CallGraph, module: Module, node: ast.AST, depth: int = 0
) -> Iterator[tuple[Module, ast.For | ast.While]]:
    """The loops around a node, here and where its function is called."""
    yield from ((module, parent) for parent in module.ancestors(node) if isinstance(parent, ast.For | ast.While))
    function = module.scope(node).function
    for caller, call in graph.sites.get(function, ()) if function is not None and depth < _DEEPEST else ():
        yield from _repeated_by(graph, caller, call, depth + 1)


def _rounds_worked_out(graph: CallGraph, loop: LoaderLoop) -> Iterator[tuple[Module, ast.expr]]:
    """`len(loader)` behind `for epoch in range(steps // len(loader))`."""
    read = set(chain(graph, loop.module.variable(loop.loader)))
    for module, around in _repeated_by(graph, loop.module, loop.statement):
        if isinstance(around, ast.For) and is_call_of(around.iter, "range"):
            for owner, part in behind(graph, module, around.iter):
                if is_length(part) and not read.isdisjoint(chain(graph, owner.variable(part.args[0]))):  # type: ignore[attr-defined]
                    yield owner, part


def _enumerated(loop: ast.stmt) -> set[str]:
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple) and "enumerate" in unparse(loop.iter):
        return {unparse(loop.target.elts[0])}
    return set()


def _is_one(node: ast.AugAssign) -> bool:
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _asks_count(test: ast.expr, counted: set[str], joined: type[ast.boolop]) -> bool:
    """Whether a number of steps decides, whatever else the condition asks: parts are `joined` so that each suffices."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, joined) and any(_asks_count(part, counted, joined) for part in test.values)
    return isinstance(test, ast.Compare) and any(
        unparse(part).rpartition(".")[2] in counted
        for part in ast.walk(test)
        if isinstance(part, ast.Name | ast.Attribute)
    )
