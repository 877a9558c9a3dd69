"""AM606: a log line that counts samples counts those of all processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.notes.batch_numbers import filled
from accel_migrate.analysis.notes.batch_rows import batch_sizes
from accel_migrate.analysis.notes.counts import Counted, Counts, counts_in
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.edits import change, note
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.plan import Change, Replace
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
_LEAPS = (
    "what is counted here is this process's own, and what it is added to is of all of the data: on N processes the number leaps "
    "at the end of each epoch; count with accelerator.num_processes if it should not"
)
_WINDOW = (
    "this list has an entry for each batch of this process, and the number goes by all of the data: an epoch adds N times fewer "
    "entries than that on N processes; take the length of the prepared loader to have those of one epoch"
)
_SIZE = re.compile(r"len\(\w+\)|\w+\.(shape\[0\]|size\(0\)|size\(\)\[0\])|([\w.]*\.)?batch_?size", re.I)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    counts = counts_in(context.script, training)
    sizes, _ = batch_sizes(context.script, training)
    for loop in training.loops:
        if loop.module is not module or not loop.trains or not training.shares(loop):
            continue
        for cut in _cut_by_all(loop, counts):
            yield note(context, CODE, cut, _WINDOW)
        counter = _Counter(module, _counters(loop), sizes, counts)
        for node in walk(loop.statement):
            if isinstance(node, ast.Compare) and counter.compares_with_all(node):
                yield note(context, CODE, node, _DECIDES)
            elif isinstance(node, ast.BinOp) and counter.goes_on_from_all(node):
                yield note(context, CODE, node, _GOES_ON)
            elif not isinstance(node, ast.BinOp) or not counter.counts_samples(node) or not counter.is_of_all(node):
                continue
            elif _is_logged(module, node) and (spelled := training.ready(module, node)) is not None:
                end = module.source.end(node)
                edit = Replace(end, end, f" * {spelled}.num_processes")
                message = "counts the samples of all processes"
                yield change(context, CODE, node, message, [edit], required=False)
            elif isinstance(module.parents[node], ast.BinOp):
                yield note(context, CODE, node, _LEAPS)


def _cut_by_all(loop: LoaderLoop, counts: Counts) -> list[ast.Subscript]:
    """`losses[-per_epoch:]`, of what each round appends to, by the number of the batches of all processes."""
    module = loop.module
    reads = [node for variable in filled(module, loop.statement) for node in module.reads(variable)]
    cuts = [cut for node in reads if isinstance(cut := module.parents[node], ast.Subscript) and cut.value is node]
    return [
        cut
        for cut in cuts
        if isinstance(cut.slice, ast.Slice)
        and any(
            end is not None and counts.counted(module, end) is Counted.ALL for end in (cut.slice.lower, cut.slice.upper)
        )
    ]


def _counters(loop: LoaderLoop) -> set[str]:
    """What counts the batches of this process: the number of `enumerate`, or a variable that grows by one."""
    inside = walk(loop.statement)
    found = {unparse(n.target) for n in inside if isinstance(n, ast.AugAssign) and unparse(n.value) == "1"}
    target = loop.statement.target
    if "enumerate(" in unparse(loop.statement.iter) and isinstance(target, ast.Tuple):
        found.add(unparse(target.elts[0]))
    return found


@dataclass(frozen=True)
class _Counter:
    """What counts batches in a loop, by its names, and what it is set against."""

    module: Module
    counters: set[str]
    sizes: set[Variable]  # of a batch, as a loader is given them
    counts: Counts

    def counts_samples(self, node: ast.expr) -> bool:
        """`batch_idx * len(data)`, `(i + 1) * x.size(0)`."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            return False
        for count, size in ((node.left, node.right), (node.right, node.left)):
            is_size = _SIZE.fullmatch(unparse(size)) is not None or self.module.variable(size) in self.sizes
            if unparse(count).removesuffix(" + 1") in self.counters and is_size:
                return True
        return False

    def goes_on_from_all(self, node: ast.BinOp) -> bool:
        """`epoch * steps_per_epoch + i`, where the steps were counted before `prepare`."""
        sides = (node.left, node.right) if isinstance(node.op, ast.Add) else ()
        earlier = [part for part in sides if unparse(part) not in self.counters]
        return len(earlier) == 1 and self._is_of_epochs(earlier[0])

    def _is_of_epochs(self, node: ast.expr) -> bool:
        times = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        return times and self.counts.counted(self.module, node) is Counted.ALL

    def compares_with_all(self, node: ast.Compare) -> bool:
        """`seen * batch_size >= limit`, and `step % steps_per_epoch == 0` where that was counted before `prepare`."""
        parts = [part for part in walk(node) if isinstance(part, ast.expr)]
        if any(self.counts_samples(part) for part in parts):
            return True
        counted = any(unparse(part) in self.counters for part in parts)
        numbers = [part for part in parts if is_length(part) or isinstance(part, ast.Name | ast.Attribute)]
        return counted and any(self.counts.counted(self.module, part) is Counted.ALL for part in numbers)

    def is_of_all(self, node: ast.expr) -> bool:
        """Whether what it is divided by or added to, or else something shown beside it, counts the samples of all processes."""
        inner: ast.AST = node
        for parent in self.module.ancestors(node):
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.left is inner:
                return self.counts.counted(self.module, parent.right) is Counted.ALL
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
                if any(self._is_of_epochs(side) for side in (parent.left, parent.right) if side is not inner):
                    return True
            inner = parent
        shown = [self.module.statement(node), *map(self.module.statement, _reads(self.module, node))]
        beside = (p for each in shown for p in walk(each) if is_length(p) or isinstance(p, ast.Name))
        return any(self.counts.counted(self.module, part) is Counted.ALL for part in beside)  # type: ignore[arg-type]


def _reads(module: Module, node: ast.expr) -> list[ast.expr]:
    """The reads of the variable that a count is put into, by itself or with what is added to it."""
    variable = _put_into(module, node)
    return [*module.reads(variable)]


def _put_into(module: Module, node: ast.expr) -> Variable | None:
    """The variable that a count is put into, also beside others: `shown, seen = loss.item(), i * len(x)`."""
    match module.statement(node):
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            target = next((each for each, value in zip(targets, values) if node in module.walk(value)), None)
        case ast.Assign(targets=[target, *_]):
            pass
        case _:
            return None
    return module.variable(target) if isinstance(target, ast.Name) else None


def _is_logged(module: Module, node: ast.expr) -> bool:
    """Whether it is an argument of a call that prints or formats, and so decides nothing; also by a name that is that alone."""
    inner: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is inner:
            return False  # a sum of this process is divided by what this process has seen
        inner = parent
        if isinstance(parent, ast.Call | ast.JoinedStr | ast.Tuple | ast.keyword):
            continue
        if isinstance(parent, ast.FormattedValue | ast.BinOp | ast.Attribute):
            continue
        variable = _put_into(module, node) if isinstance(parent, ast.Assign) else None
        if variable is not None and len(module.bindings(variable)) == 1:
            return all(_is_logged(module, read) for read in _reads(module, node))
        return isinstance(parent, ast.Expr)
    return False


RULE = Rule(
    code=CODE,
    summary="samples counted in a log line",
    why="The batch number of one process times its batch size is what it has seen itself; beside `len(loader.dataset)` the "
    "reader expects what all have seen.",
    example_before='print(f"{batch_idx * len(data)}/{len(loader.dataset)}")',
    example_after='print(f"{batch_idx * len(data) * accelerator.num_processes}/{len(loader.dataset)}")',
    find=find,
)
