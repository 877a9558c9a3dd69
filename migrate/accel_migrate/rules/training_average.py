"""AM605: a sum over this process's samples is divided by this process's part of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.by_batch import Summed
from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.notes.batch_rows import chooses_sizes
from accel_migrate.analysis.notes.counts import Counted, Counts, counts_in
from accel_migrate.analysis.notes.loss_reduced import reduced_kind
from accel_migrate.analysis.notes.worked_out import Running, is_evaluated, running_figures
from accel_migrate.analysis.trainings.fed import feeds_training
from accel_migrate.analysis.trainings.phases import is_chosen
from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, note
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import follows
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule
from accel_migrate.source import Source

CODE = "AM605"
_PERCENT = 100
_SHARES = {"sum": "sample_share", "mean": "batch_share", "uneven": "batch_share", "weighted": "batch_share"}
_ABOUT = (
    "this is about the process's part: the last round of batches is filled up with samples from the start, or left out with "
    "drop_last, so on N processes the figure may differ by as much as N batches are of the data"
)
_SPLIT = "; where batches are split over processes and this adds up means of batches, it is N times too large"
_SIZES = (
    "this process's share is counted by batches, because a batch sampler chooses their sizes: the figure is as exact as batches "
    "are equally large"
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
        if module.scope(node).function in phases:
            continue
        if not training.local.is_local(module, left):
            yield from _of_evaluation(context, counts, left, right)
            continue
        if _is_of_loss(context, node):
            continue
        counted = counts.counted(module, right)
        if counted is Counted.SHARE and _is_number_of_data(context, node, right):
            counted = Counted.UNKNOWN
        if _also_evaluates(context, node):
            if counted is Counted.ALL and _is_read(context, node):
                yield note(context, CODE, right, _IN_BOTH)
            continue
        yield from _divided(context, node, left, right, counted)
    figures = [f for f in running_figures(training.loops, training.backwards) if f.module is module and f.summed]
    added = [e.loop for e in training.evaluations if isinstance(e, Summed)]
    told = [f for f in figures if f.loop in by_phase and f.loop not in added and _is_prepared(context, f.loop)]
    yield from _by_phase(context, told)


def _of_evaluation(context: Context, counts: Counts, left: ast.expr, right: ast.expr) -> Iterator[Change]:
    """`val_loss / len(train_loader)`: the figure is of all processes, and the length is that of a shard."""
    training, module = context.training, context.module
    kept = [length for e in training.evaluations if isinstance(e, Summed) for _, length in e.lengths]
    own = {e.loop.module.variable(e.loop.loader) for e in training.evaluations}  # judged with the loop over it
    written = [node for node in module.walk(right, ast.Call) if is_length(node) and node not in kept]
    lengths = [n for n in written if counts.is_shared(module, n.args[0]) and module.variable(n.args[0]) not in own]
    behind = [
        n.args[0] for n in _lengths_behind(module, right) if n not in kept and module.variable(n.args[0]) not in own
    ]
    taken = [held for held in behind if counts.is_shared(module, held) and counts.is_prepared(module, held)]
    if not (lengths or taken) or not is_evaluated(context.script, training, module, left):
        return
    always = all(_is_always_shared(context, counts, module, length.args[0]) for length in lengths)
    if lengths and always and context.settings.target != "accelerate":
        edits = [_of_all(module.source, length) for length in lengths]
        yield change(context, CODE, right, "divides a figure of all data by the length of all", edits)
    else:
        message = (
            f"what is divided here is of an evaluation, and `{unparse(right)}` goes by the length of a prepared loader, which "
            "is that of one process's shard: the figure is N times too large on N processes; divide by the length that the "
            "loader had before prepare"
        )
        yield note(context, CODE, right, message)


def _is_always_shared(context: Context, counts: Counts, module: Module, loader: ast.expr) -> bool:
    """Whether a name holds a prepared loader in every call: another one has no `base_dataloader`."""
    variable = module.variable(loader)
    is_parameter = module.is_parameter(variable)
    given = context.script.graph.given(variable) if variable is not None and is_parameter else []
    return counts.is_shared(module, loader) and all(
        value is not None and _is_always_shared(context, counts, caller, value) for caller, _, value in given
    )


def _lengths_behind(module: Module, right: ast.expr) -> Iterator[ast.Call]:
    """The lengths that names of a divisor stand for."""
    for name in module.walk(right, ast.Name, ast.Attribute):
        for binding in module.bindings_of(name):
            for node in module.walk(binding.value) if binding.value is not None else ():
                if isinstance(node, ast.Call) and is_length(node):
                    yield node


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
    graph = context.script.graph
    inner = {f for loop in training.loops if loop.trains for f in graph.reached_from(loop.statement, loop.module)}
    function = module.scope(node).function
    if function in inner and not any(loop.function is function for loop in training.loops):
        return True
    return feeds_training(graph, training.backwards, module, module.statement(node)) and any(
        loop.statement in module.ancestors(node) for loop in training.loops
    )


def _divided(context: Context, node: ast.AST, left: ast.expr, right: ast.expr, counted: Counted) -> Iterator[Change]:
    training, module = context.training, context.module
    spelled = training.ready(module, right) if counted is Counted.ALL else None
    added = reduced_kind(context.script.graph, module, left)
    share = _SHARES.get(added) if context.settings.target != "accelerate" else None
    loader = _loader(context, node, right) if share is not None else None
    lengths = _lengths(context, right) if added == "sum" and counted is Counted.SHARE else []
    if loader is not None and share is not None and (spelled is not None or lengths):
        edits: list[Edit] = [*_times(module.source, node, right, f"{module.source.code(loader)}.{share}")]
        edits += [_of_all(module.source, length) for length in lengths]
        yield change(context, CODE, right, "divides by this process's part", edits)
        if share == "sample_share" and chooses_sizes(context.script, module.variable(loader)):
            yield note(context, CODE, right, _SIZES)
    elif spelled is not None:
        edits = [*_times(module.source, node, right, f"{spelled}.num_processes", "/")]
        yield change(context, CODE, right, "divides by this process's part", edits)
        told = _ABOUT if added == "sum" else _ABOUT + _SPLIT
        yield note(context, CODE, right, told)
    elif counted is Counted.ALL:
        message = (
            f"what is divided here is over this process's share, and `{unparse(right)}` counts all of the data: the figure "
            "is N times too small on N processes; divide by this process's part"
        )
        yield note(context, CODE, right, message)
    elif counted is Counted.UNKNOWN:
        message = (
            f"what is divided here is over this process's share; whether `{unparse(right)}` counts that or all of the data "
            "is not visible to the analysis: if it counts all, divide it by accelerator.num_processes"
        )
        yield note(context, CODE, right, message)


def _by_phase(context: Context, figures: list[Running]) -> Iterator[Change]:
    """`running_loss / dataset_sizes[phase]`: right in the phases that evaluate, and too small in the one that trains."""
    module = context.module
    told: set[str] = set()
    for node in module.walk(module.tree, ast.BinOp, ast.AugAssign):
        divided = _division(node)
        for figure in figures if divided is not None else ():
            assert divided is not None
            chosen = (
                figure.name not in told and _mentions(divided[0], figure.name) and _after(context, node, figure.loop)
            )
            if chosen and _same_function(context, node, figure.loop):
                told.add(figure.name)
                message = (
                    f"while training, `{figure.name}` is over this process's share; where it is divided by the number of all "
                    "samples, times accelerator.num_processes is about the figure of all"
                )
                yield note(context, CODE, node, message)


def _division(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left, node.right
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.target, node.value
    return None


def _loader(context: Context, node: ast.AST, right: ast.expr) -> ast.expr | None:
    """The prepared loader that a sum went through, as it is named at the division."""
    training, module = context.training, context.module
    loops = [loop for loop in training.loops if loop.trains and training.shares(loop) and loop.module is module]
    beside = [loop for loop in loops if _same_function(context, node, loop)]
    held = [n.args[0] for n in module.walk(right) if is_length(n)]  # type: ignore[attr-defined]
    asked = [
        n.value
        for n in held
        if isinstance(n, ast.Attribute) and counts_in(context.script, training).is_shared(module, n.value)
    ]
    named = [*asked, *[loop.loader for loop in beside]] or [
        loader for length in held for loader in _drawn_by(context, node, length)
    ]
    if len({ast.dump(loader) for loader in named}) != 1:
        return None
    # Within an f-string no quotes may come that it does not have yet.
    in_text = any(isinstance(above, ast.JoinedStr) for above in module.ancestors(node))
    simple = ast.Name | ast.Attribute | ast.Subscript if asked or not in_text else ast.Name | ast.Attribute
    return named[0] if isinstance(named[0], simple) else None


def _drawn_by(context: Context, node: ast.AST, sampler: ast.expr) -> Iterator[ast.expr]:
    """The prepared loaders of the same scope that were built with a sampler that has a name of its own."""
    training, module, roles = context.training, context.module, context.script.roles
    variable = module.variable(sampler)
    for loader in (built.variable for built in training.prepared if variable is not None and built.key is None):
        bound = module.bindings(loader) if loader.scope is module.scope(node) else []
        targets = bound[0].statement.targets if len(bound) == 1 and isinstance(bound[0].statement, ast.Assign) else []
        given = [
            owner.variable(keyword.value)
            for owner, call in constructions(roles, loader, Role.LOADER)
            for keyword in call.keywords
            if keyword.arg == "sampler"
        ]
        if variable in given:
            yield from (target for target in targets if isinstance(target, ast.Name))


def _lengths(context: Context, right: ast.expr) -> list[ast.Call]:
    """`len(loader)` of `len(loader) * batch_size`: as many samples as full batches have."""
    if not isinstance(right, ast.BinOp) or not isinstance(right.op, ast.Mult):
        return []
    module, training = context.module, context.training
    held = [part for part in (right.left, right.right) if is_length(part)]
    return [part for part in held if training.holds(module.variable(part.args[0]))]  # type: ignore[attr-defined,misc]


def _times(source: Source, node: ast.AST, right: ast.expr, by: str, sign: str = "*") -> Iterator[Replace]:
    """`right * by` in the place of a divisor; the brackets of `a / (b + c)` are outside of `b + c`."""
    operation = right.op if isinstance(right, ast.BinOp) else None
    inner = ("(", ")") if isinstance(right, ast.IfExp) or isinstance(operation, ast.Add | ast.Sub) else ("", "")
    start, end = source.start(right), source.end(right)
    spare = isinstance(node, ast.BinOp) and "(" in source.text[source.end(node.left) : start]  # `a / (len(data))`
    bracketed = spare or isinstance(right, ast.IfExp) or not isinstance(operation, ast.Pow | None)
    outer = ("", "") if bracketed or isinstance(node, ast.AugAssign) else ("(", ")")
    yield Replace(start, start, outer[0] + inner[0])
    yield Replace(end, end, f"{inner[1]} {sign} {by}{outer[1]}")


def _of_all(source: Source, length: ast.Call) -> Replace:
    held = length.args[0]
    return Replace(source.end(held), source.end(held), ".base_dataloader")


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name | ast.Attribute) and unparse(n) == name for n in walk(node))


def _same_function(context: Context, node: ast.AST, loop: LoaderLoop) -> bool:
    return context.module.scope(node).function is loop.function


def _after(context: Context, node: ast.AST, loop: LoaderLoop) -> bool:
    module = context.module
    return follows(module, loop.statement, node) and not module.holds(loop.statement, node)


RULE = Rule(
    code=CODE,
    summary="a running sum over the length of the whole data set",
    why="After prepare each process sums up its own shard, while `len(loader.dataset)` still speaks of all: the figure would be "
    "N times too small. Times the share that this process has, which counts what fills the last round, it is the main process's "
    "view on the original's scale, and on one process the same to the bit. `loader.batch_share` is for sums of batch means.",
    example_before="total_loss += loss.item() * x.size(0)\n...\nreturn total_loss / len(loader.dataset)",
    example_after="total_loss += loss.item() * x.size(0)\n...\nreturn total_loss / (len(loader.dataset) * loader.sample_share)",
    find=find,
)
