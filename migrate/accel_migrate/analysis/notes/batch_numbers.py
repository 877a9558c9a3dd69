"""Numbers of batches that a script waits for, and that a shard may not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.program.reaching import reaching
from accel_migrate.analysis.program.scopes import Module, Variable
from accel_migrate.analysis.trainings.training import Script
from accel_migrate.analysis.values.contents import handed_for
from accel_migrate.analysis.values.loops import LoaderLoop

_REACHES = (ast.Eq, ast.Gt, ast.GtE)
_IS_REACHED = (ast.Eq, ast.Lt, ast.LtE)


def waited_for(script: Script, loop: LoaderLoop) -> Iterator[ast.Compare]:
    """`if i == 390:` in a loop over a loader: comparisons with a number that is given, and is no loader's length."""
    module = loop.module
    counters = set(_counters(loop))
    for node in module.walk(loop.statement, ast.Compare) if counters else ():
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        for counted, number, operators in (
            (node.left, node.comparators[0], _REACHES),
            (node.comparators[0], node.left, _IS_REACHED),
        ):
            if isinstance(node.ops[0], operators) and _counts(module, counted, counters):
                if _is_number(script, module, number):
                    yield node


def _counters(loop: LoaderLoop) -> Iterator[Variable]:
    """What numbers the batches of each pass: of `enumerate`, or set to a number before the loop and raised by one in it."""
    module, statement = loop.module, loop.statement
    target = statement.target
    if isinstance(target, ast.Tuple) and "enumerate(" in module.source.code(statement.iter):
        variable = module.variable(target.elts[0])
        if variable is not None:
            yield variable
    outer = [parent for parent in module.ancestors(statement) if isinstance(parent, ast.For | ast.While)]
    for node in module.walk(statement, ast.AugAssign):
        if not isinstance(node, ast.AugAssign) or module.source.code(node.value) != "1":
            continue
        variable = module.variable(node.target)
        set_to = [b for b in module.bindings(variable) if b.kind == "assign"] if variable is not None else []
        if variable is not None and any(
            [parent for parent in module.ancestors(b.statement) if isinstance(parent, ast.For | ast.While)] == outer
            and module.scope(b.statement) is module.scope(statement)
            for b in set_to
        ):
            yield variable


def _counts(module: Module, node: ast.expr, counters: set[Variable]) -> bool:
    """`i`, or `i + 1`; not where the name is another loop's."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant):
        node = node.left
    variable = module.variable(node) if isinstance(node, ast.Name) else None
    if variable is None or variable not in counters:
        return False
    assert isinstance(node, ast.Name)
    return all(binding.kind in ("for", "augment", "assign") for binding in reaching(module, node, variable))


def _is_number(script: Script, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether it is one that the author or the user gives, and not of the first batches; a loader's length is not one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and (node.value > 1 or depth > 0)
    if isinstance(node, ast.BinOp):
        return all(_is_number(script, module, side, depth + 1) for side in (node.left, node.right))
    if not isinstance(node, ast.Name | ast.Attribute) or depth > 6:
        return False
    variable = module.variable(node)
    bindings = module.bindings(variable) if variable is not None else []
    if variable is None or not bindings:
        return isinstance(node, ast.Attribute)  # `args.limit`
    values = [(module, b.value) for b in bindings if b.kind == "assign" and b.value is not None and not b.path]
    known = len(values) == len(bindings)
    if all(binding.kind == "parameter" for binding in bindings):
        values, known = [*handed_for(script.graph, variable)], True
    return known and bool(values) and all(_is_number(script, owner, value, depth + 1) for owner, value in values)
