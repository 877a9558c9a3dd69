"""AM606: a log line that counts samples counts those of all processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.notes.counts import Counted, Counts, counts_in
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Replace, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM606"
_DECIDES = (
    "what is counted here is this process's own, and it is compared with a number for all of the data: on N processes that is "
    "reached N times later; count with accelerator.num_processes if it should not be"
)
_GOES_ON = (
    "an epoch has N times fewer steps on N processes than are counted for it here: the number leaps at the end of each epoch; "
    "take the length of the prepared loader if it should not"
)
_SIZE = re.compile(r"len\(\w+\)|\w+\.(shape\[0\]|size\(0\)|size\(\)\[0\])|([\w.]*\.)?batch_?size", re.I)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    counts = counts_in(context.script, training)
    for loop in training.loops:
        counters = _counters(loop)
        if loop.module is not module or not loop.trains or not training.shares(loop):
            continue
        for node in walk(loop.statement):
            if isinstance(node, ast.Compare) and _compares_with_all(module, counts, node, counters):
                yield change(CODE, node, _DECIDES, loop=training.index, safety=Safety.NOTE)
            elif isinstance(node, ast.BinOp) and _goes_on_from_all(module, counts, node, counters):
                yield change(CODE, node, _GOES_ON, loop=training.index, safety=Safety.NOTE)
            if _counts_samples(node, counters) and _is_logged(context, node) and _is_of_all(module, counts, node):
                assert isinstance(node, ast.BinOp)
                spelled = training.ready(module, node)
                if spelled is not None:
                    end = module.source.end(node)
                    edit = Replace(end, end, f" * {spelled}.num_processes")
                    yield change(
                        CODE, node, "counts the samples of all processes", [edit], loop=training.index, required=False
                    )


def _counters(loop: LoaderLoop) -> set[str]:
    """What counts the batches of this process: the number of `enumerate`, or a variable that grows by one."""
    inside = walk(loop.statement)
    found = {unparse(n.target) for n in inside if isinstance(n, ast.AugAssign) and unparse(n.value) == "1"}
    target = loop.statement.target
    if "enumerate(" in unparse(loop.statement.iter) and isinstance(target, ast.Tuple):
        found.add(unparse(target.elts[0]))
    return found


def _counts_samples(node: ast.AST, counters: set[str]) -> bool:
    """`batch_idx * len(data)`, `(i + 1) * x.size(0)`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    for count, size in ((node.left, node.right), (node.right, node.left)):
        if unparse(count).removesuffix(" + 1") in counters and _SIZE.fullmatch(unparse(size)):
            return True
    return False


def _goes_on_from_all(module: Module, counts: Counts, node: ast.BinOp, counters: set[str]) -> bool:
    """`epoch * steps_per_epoch + i`, where the steps were counted before `prepare`."""
    sides = (node.left, node.right) if isinstance(node.op, ast.Add) else ()
    earlier = [part for part in sides if unparse(part) not in counters]
    if len(earlier) != 1 or not isinstance(earlier[0], ast.BinOp):
        return False
    return isinstance(earlier[0].op, ast.Mult) and counts.counted(module, earlier[0]) is Counted.ALL


def _compares_with_all(module: Module, counts: Counts, node: ast.Compare, counters: set[str]) -> bool:
    """`seen * batch_size >= limit`, and `step % steps_per_epoch == 0` where that was counted before `prepare`."""
    parts = [part for part in walk(node) if isinstance(part, ast.expr)]
    if any(_counts_samples(part, counters) for part in parts):
        return True
    counted = any(unparse(part) in counters for part in parts)
    numbers = [part for part in parts if is_length(part) or isinstance(part, ast.Name | ast.Attribute)]
    return counted and any(counts.counted(module, part) is Counted.ALL for part in numbers)


def _is_logged(context: Context, node: ast.AST) -> bool:
    """Whether it is an argument of a call that prints or formats, and so decides nothing."""
    inner = node
    for parent in context.module.ancestors(node):
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is inner:
            return False  # a sum of this process is divided by what this process has seen
        inner = parent
        if isinstance(parent, ast.Call | ast.JoinedStr | ast.Tuple):
            continue
        if isinstance(parent, ast.FormattedValue | ast.BinOp | ast.Attribute):
            continue
        return isinstance(parent, ast.Expr)
    return False


def _is_of_all(module: Module, counts: Counts, node: ast.AST) -> bool:
    """Whether what it is divided by, or else something shown beside it, counts the samples of all processes."""
    inner = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.left is inner:
            return counts.counted(module, parent.right) is Counted.ALL
        inner = parent
    beside = (part for part in walk(module.statement(node)) if is_length(part) or isinstance(part, ast.Name))
    return any(counts.counted(module, part) is Counted.ALL for part in beside)  # type: ignore[arg-type]


RULE = Rule(
    code=CODE,
    name="samples_logged",
    summary="samples counted in a log line",
    why="The batch number of one process times its batch size is what it has seen itself; beside `len(loader.dataset)` the "
    "reader expects what all have seen.",
    example_before='print(f"{batch_idx * len(data)}/{len(loader.dataset)}")',
    example_after='print(f"{batch_idx * len(data) * accelerator.num_processes}/{len(loader.dataset)}")',
    find=find,
)
