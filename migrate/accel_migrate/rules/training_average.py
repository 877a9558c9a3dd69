"""AM605: a sum over this process's samples is divided by this process's part of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.notes.counts import Counted, counts_in
from accel_migrate.analysis.notes.running import Running, running_figures
from accel_migrate.analysis.trainings.entries import is_chosen
from accel_migrate.analysis.trainings.fed import feeds_training
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.edits import change, replace_node
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.plan import Change, Edit, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM605"
_PERCENT = 100
_FILLED = (
    "on N processes the last round of batches is filled up with samples from the start, which are in the sum and not in this "
    "process's part of the data: where the batches do not divide by N the figure is a little too large"
)
_IN_BOTH = (
    "where this trains, what is divided is over this process's share: the figure is N times too small on N processes; times "
    "accelerator.num_processes it is about that of all"
)


def find(context: Context) -> Iterator[Change]:
    training, module, roles = context.training, context.module, context.script.roles
    by_phase = [loop for loop in training.loops if is_chosen(roles, loop)]
    phases = {loop.function for loop in by_phase}
    counts = counts_in(context.script, training)
    for node in module.walk(module.tree, ast.BinOp, ast.AugAssign) if training.local.loops else ():
        divided = _division(node)
        if divided is None or not training.timing.after_prepare(module, node):
            continue
        left, right = divided
        if module.scope(node).function in phases or not training.local.is_local(module, left):
            continue
        if _is_of_loss(context, node):
            continue
        counted = counts.counted(module, right)
        if counted is Counted.SHARE and _is_number_of_data(context, node, right):
            counted = Counted.UNKNOWN
        if _also_evaluates(context, node):
            if counted is Counted.ALL and _is_read(context, node):
                yield change(CODE, right, _IN_BOTH, loop=training.index, safety=Safety.NOTE)
            continue
        yield from _divided(context, node, right, counted)
    figures = [f for f in running_figures(training.loops, training.backwards) if f.module is module and f.summed]
    yield from _by_phase(context, [f for f in figures if f.loop in by_phase and _is_prepared(context, f.loop)])


def _is_prepared(context: Context, loop: LoaderLoop) -> bool:
    """Whether one of the loaders that a loop chooses from is sharded."""
    assert isinstance(loop.loader, ast.Subscript)
    return context.training.holds(loop.module.variable(loop.loader.value))


def _is_number_of_data(context: Context, node: ast.AST, right: ast.expr) -> bool:
    """`running_loss / 50000` after the loop: in the loop a number written out counts the batches between two lines of a log."""
    written = isinstance(right, ast.Constant) and isinstance(right.value, int | float) and right.value > _PERCENT
    loops = {loop.statement for loop in context.training.loops}
    return written and loops.isdisjoint(context.module.ancestors(node))


def _also_evaluates(context: Context, node: ast.AST) -> bool:
    """Whether a division stands in a function that trains in one call and evaluates all of the data in another."""
    function = context.module.scope(node).function
    return any(isinstance(e, Whole) and e.calls and e.loop.function is function for e in context.training.evaluations)


def _is_read(context: Context, node: ast.AST) -> bool:
    """Whether anybody looks at what the function returns where it trains."""
    function = context.module.scope(node).function
    evaluating = {call for e in context.training.evaluations if isinstance(e, Whole) for call in e.calls}
    sites = context.script.graph.sites.get(function, []) if function is not None else []
    return any(call not in evaluating and not isinstance(module.parents[call], ast.Expr) for module, call in sites)


def _is_of_loss(context: Context, node: ast.AST) -> bool:
    """Whether a division is a part of what is trained on, and no figure that is told."""
    training, module = context.training, context.module
    roles, graph = context.script.roles, context.script.graph
    inner = {
        f for loop in training.loops if loop.trains for f in graph.reached_from(loop.statement, roles, loop.module)
    }
    function = module.scope(node).function
    if function in inner and not any(loop.function is function for loop in training.loops):
        return True
    return feeds_training(roles, graph, training.backwards, module, module.statement(node)) and any(
        loop.statement in module.ancestors(node) for loop in training.loops
    )


def _divided(context: Context, node: ast.AST, right: ast.expr, counted: Counted) -> Iterator[Change]:
    training, module = context.training, context.module
    spelled = training.ready(module, right) if counted is Counted.ALL else None
    if spelled is not None:
        edit = _part(context, node, right, spelled)
        yield change(CODE, right, "divides by this process's part", [edit], loop=training.index)
        yield change(CODE, right, _FILLED, loop=training.index, safety=Safety.NOTE)
    elif counted is Counted.ALL:
        message = (
            f"what is divided here is over this process's share, and `{unparse(right)}` counts all of the data: the figure "
            "is N times too small on N processes; divide by this process's part"
        )
        yield change(CODE, right, message, loop=training.index, safety=Safety.NOTE)
    elif counted is Counted.UNKNOWN:
        message = (
            f"what is divided here is over this process's share; whether `{unparse(right)}` counts that or all of the data "
            "is not visible to the analysis: if it counts all, divide it by accelerator.num_processes"
        )
        yield change(CODE, right, message, loop=training.index, safety=Safety.NOTE)


def _by_phase(context: Context, figures: list[Running]) -> Iterator[Change]:
    """`running_loss / dataset_sizes[phase]`: right in the phases that evaluate, and too small in the one that trains."""
    training, module = context.training, context.module
    told: set[str] = set()
    for node in module.walk(module.tree, ast.BinOp, ast.AugAssign):
        divided = _division(node)
        for figure in figures if divided is not None else ():
            assert divided is not None
            chosen = figure.name not in told and _mentions(divided[0], figure.name) and _after(node, figure.loop)
            if chosen and _same_function(context, node, figure.loop):
                told.add(figure.name)
                message = (
                    f"while training, `{figure.name}` is over this process's share; where it is divided by the number of all "
                    "samples, times accelerator.num_processes is about the figure of all"
                )
                yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)


def _division(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left, node.right
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.target, node.value
    return None


def _part(context: Context, node: ast.AST, right: ast.expr, spelled: str) -> Edit:
    text = f"{context.module.source.code(right)} / {spelled}.num_processes"
    return replace_node(context.module.source, right, text if isinstance(node, ast.AugAssign) else f"({text})")


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name | ast.Attribute) and unparse(n) == name for n in walk(node))


def _same_function(context: Context, node: ast.AST, loop: LoaderLoop) -> bool:
    return context.module.scope(node).function is loop.function


def _after(node: ast.AST, loop: LoaderLoop) -> bool:
    return bool(getattr(node, "lineno", 0) > (loop.statement.end_lineno or 0))


RULE = Rule(
    code=CODE,
    name="training_average",
    summary="a running sum over the length of the whole data set",
    why="After prepare each process sums up its own shard, while `len(loader.dataset)` still speaks of all: the figure would be "
    "N times too small. Divided by its part, it is the main process's view, and on one process the same to the bit.",
    example_before="return total_loss / len(loader.dataset)",
    example_after="return total_loss / (len(loader.dataset) / accelerator.num_processes)",
    find=find,
)
