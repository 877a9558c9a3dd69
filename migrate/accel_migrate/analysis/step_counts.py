"""What ends a training: the data, a count of steps, or something that is not understood."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from accel_migrate.analysis.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.scopes import Module

_DEEPEST = 4


class Ended(Enum):
    DATA = "data"  # every epoch goes through the loader once
    COUNT = "count"  # a number of steps is reached
    UNKNOWN = "unknown"


def ended_by(graph: CallGraph, loop: LoaderLoop) -> Ended:
    """What ends a loop over a loader, or the `while` that begins it anew."""
    module = loop.module
    inside = list(module.walk(loop.statement))
    counted = {_text(node.target) for node in inside if isinstance(node, ast.AugAssign) and _is_one(node)}
    counted |= _enumerated(loop.statement)
    tests = [test for test in _leaving(module, loop.statement) if test is not None]
    tests += _conditions(graph, module, loop.statement)
    if not tests:
        return Ended.DATA
    alike = {name.rpartition(".")[2] for name in counted}
    return Ended.COUNT if any(_asks_count(test, alike) for test in tests) else Ended.UNKNOWN


def _leaving(module: Module, loop: ast.stmt) -> Iterator[ast.expr | None]:
    """The conditions under which a loop is left by `break` or `return`."""
    for node in module.walk(loop):
        if not isinstance(node, ast.Break | ast.Return):
            continue
        around = list(module.ancestors(node))
        inner = around[: around.index(loop)]
        if isinstance(node, ast.Break) and any(isinstance(parent, ast.For | ast.While) for parent in inner):
            continue
        if not any(isinstance(parent, ast.FunctionDef | ast.Lambda) for parent in inner):
            yield next((parent.test for parent in inner if isinstance(parent, ast.If)), None)


def _conditions(graph: CallGraph, module: Module, node: ast.AST, depth: int = 0) -> list[ast.expr]:
    """The conditions of `while` around a loop, here and where its function is called."""
    found = [
        p.test for p in module.ancestors(node) if isinstance(p, ast.While) and not isinstance(p.test, ast.Constant)
    ]
    function = module.scope(node).function
    for caller, call in graph.sites.get(function, ()) if function is not None and depth < _DEEPEST else ():
        found += _conditions(graph, caller, call, depth + 1)
    return found


def _enumerated(loop: ast.stmt) -> set[str]:
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple) and "enumerate" in ast.unparse(loop.iter):
        return {_text(loop.target.elts[0])}
    return set()


def _is_one(node: ast.AugAssign) -> bool:
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _asks_count(test: ast.expr, counted: set[str]) -> bool:
    return any(
        isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq) for op in node.ops)
        and any(
            _text(part).rpartition(".")[2] in counted
            for part in ast.walk(node)
            if isinstance(part, ast.Name | ast.Attribute)
        )
        for node in ast.walk(test)
    )


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
