"""Where a script names the GPUs that it may use: CUDA reads that once, when the Accelerator takes its device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.evidence import Evidence, Side, step_of
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_READS_IT = ("torch.cuda.is_available", "torch.cuda.set_device", "torch.cuda.current_device", "torch.cuda.init")


def named_too_late(evidence: Evidence, file: Module, call: ast.Call) -> Iterator[tuple[Module, ast.AST, str]]:
    """Statements after the Accelerator that set the variable, where the original sets it before CUDA is asked."""
    side = evidence.after
    if not any(_is_variable(node) for each in side.files for node in each.walk(each.tree, ast.Constant)):
        return
    graph = side.graph(file.scope(call).frame)
    made = step_of(file, call, graph)
    if made is None:
        return
    for node in file.walk(file.tree):
        if not isinstance(node, ast.stmt) or not graph.holds(node) or node is made:
            continue
        if _names_gpus(side, file, node) and graph.reachable(made, node) and not _is_late_anyway(evidence, node):
            yield (
                file,
                node,
                f"the Accelerator would be made before `{unparse(node).splitlines()[0][:60]}` names the GPUs",
            )


def _names_gpus(side: Side, file: Module, step: ast.stmt) -> bool:
    """Whether a statement sets the variable, itself or in a function that it calls."""
    own = list(_own(step))
    calls = [node for node in own if isinstance(node, ast.Call)]
    return any(_sets(file, node) for node in own) or any(
        _sets_within(side, callee, set()) for call in calls for callee in side.flows.callees.get(call, ())
    )


def _sets_within(side: Side, function: Function, seen: set[Function]) -> bool:
    if function in seen:
        return False
    seen.add(function)
    file = side.flows.function_file[function]
    return any(
        _sets(file, node)
        or (
            isinstance(node, ast.Call)
            and any(_sets_within(side, each, seen) for each in side.flows.callees.get(node, ()))
        )
        for node in walk(function)
    )


def _own(step: ast.stmt) -> Iterator[ast.AST]:
    """A statement without the blocks that it opens: those are steps of their own."""
    if isinstance(step, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return):
        yield from walk(step)
    elif isinstance(step, ast.With):
        yield from (part for item in step.items for part in walk(item))
    elif isinstance(step, ast.If | ast.While):
        yield from walk(step.test)


def _sets(file: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(
            isinstance(target, ast.Subscript) and _is_variable(target.slice) and _environment(file, target.value)
            for target in node.targets
        )
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("setdefault", "putenv")
        and bool(node.args)
        and _is_variable(node.args[0])
    )


def _environment(file: Module, node: ast.expr) -> bool:
    return (file.qualified(node) or "") == "os.environ"


def _is_variable(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == _VARIABLE


def _is_late_anyway(evidence: Evidence, step: ast.stmt) -> bool:
    """Whether the original asks CUDA for its GPUs before the same statement, which then does nothing there either."""
    text = unparse(step)
    for file in evidence.before.files:
        for node in file.walk(file.tree):
            if isinstance(node, ast.stmt) and type(node) is type(step) and unparse(node) == text:
                graph = evidence.before.graph(file.scope(node).frame)
                asked = [
                    step_of(file, each, graph)
                    for each in file.walk(file.tree, ast.Call)
                    if file.qualified(each.func) in _READS_IT
                ]
                if any(at is not None and at is not node and graph.dominates(at, node) for at in asked):
                    return True
    return False
