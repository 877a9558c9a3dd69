"""AM702: a model is handed to `prepare` bare: DistributedDataParallel and DataParallel go, and `.module` with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Wrapping
from accel_migrate.analysis.distribution.unwrapping import is_part
from accel_migrate.analysis.notes.batch_norm import names_batch_norm
from accel_migrate.analysis.notes.batch_rows import takes_in_more
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, comment_above, left_empty, note, piece_changes, places, without
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Edit, Replace, Uncomment
from accel_migrate.rule import Context, Rule

CODE = "AM702"
_SPEAKS_OF_WRAPPING = re.compile(r"\b(ddp|distributed\w*|data.?parallel|wrap\w*|gpus?)\b", re.I)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    told = takes_in_more(context.script, context.training)  # with this in it
    for wrapping in training.distribution.wrappings:
        if wrapping.module is module:
            edits = _edits(context, wrapping)
            bare = _is_unprepared(context, wrapping)
            yield change(context, CODE, wrapping.call, _BARE if bare else "`prepare` takes its place", edits)
            if bare and not wrapping.is_data_parallel and names_batch_norm(context.script, training):
                yield note(context, CODE, wrapping.call, _BUFFERS)
            if wrapping.in_place and is_part(context.script.roles, module, wrapping.model):
                part = unparse(wrapping.model).rpartition(".")[2]
                message = f"names of saved weights lose the `module.` behind `{part}.`; older files do not fit"
                yield note(context, CODE, wrapping.call, message)
            divides = training.distribution.worker is not None and training.distribution.worker.count is not None
            if wrapping.is_data_parallel and not divides and not told:
                told = True
                yield note(context, CODE, wrapping.call, _SPLIT)
    yield from piece_changes(context, CODE)
    yield from _split_in_forward(context)
    if not training.wraps_models:
        yield from _synchronised_by_hand(context)


def _split_in_forward(context: Context) -> Iterator[Change]:
    """`nn.parallel.data_parallel(self.main, x, range(self.ngpu))` in a model."""
    training, graph = context.training, context.script.graph
    if training.place.module is not context.module:
        return
    models = [built.variable for built in training.prepared if built.role == Role.MODEL]
    parts = dict.fromkeys((part.module, part.node) for model in models for part in made_of(graph, model))
    calls = [(owner, call) for owner, node in parts for call in owner.walk(node, ast.Call)]
    found = [each for each in calls if each[0].full_name(each[1].func).endswith("nn.parallel.data_parallel")]
    if found:
        yield note(context, CODE, training.place.after, _IN_FORWARD.format(places(context.module, found)))


def _is_unprepared(context: Context, wrapping: Wrapping) -> bool:
    """Whether what was wrapped is not among what is prepared: a teacher."""
    statement, module = context.module.statement(wrapping.call), context.module
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    variable = module.variable(target) if isinstance(target, ast.Name | ast.Attribute) else None
    links = chain(context.script.graph, variable)
    return variable is not None and not any(context.training.holds(link) for link in links)


def _synchronised_by_hand(context: Context) -> Iterator[Change]:
    """`model.require_backward_grad_sync = last`, of which the wrapper took notice."""
    module, training = context.module, context.training
    for node in module.walk(module.tree, ast.Attribute) if training.distribution.wrappings else ():
        if node.attr == "require_backward_grad_sync":
            if isinstance(node.ctx, ast.Store) and training.holds(module.variable(node.value)):
                yield note(context, CODE, node, _EXCHANGED)
                return


def _edits(context: Context, wrapping: Wrapping) -> list[Edit]:
    module, source, call = context.module, context.module.source, wrapping.call
    statement = module.statement(call)
    needless = {move.call for move in context.training.dropped}
    if (
        isinstance(statement, ast.Assign)
        and _unmoved(statement.value, needless) is call
        and len(statement.targets) == 1
    ):
        target = module.variable(statement.targets[0])
        model = module.variable(_unmoved(wrapping.model, needless))
        same = target is not None and (target == model or _is_stored(context, statement, wrapping))
        if same or wrapping.in_place:
            return [without(source, statement, _SPEAKS_OF_WRAPPING), *_untrue_comments(context, statement)]
    return [
        Replace(source.start(call), source.start(wrapping.model), ""),
        Replace(source.end(wrapping.model), source.end(call), ""),
    ]


def _is_stored(context: Context, statement: ast.Assign, wrapping: Wrapping) -> bool:
    """`self.model = model.to(rank)` further up: there the model is under that name already."""
    block = context.module.block(statement)
    name, model = unparse(statement.targets[0]), unparse(wrapping.model)
    stored = [s for s in block[: block.index(statement)] if isinstance(s, ast.Assign) and unparse(s.targets[0]) == name]
    if not stored:
        return False
    return unparse(_unmoved(stored[-1].value)) == model


def _unmoved(value: ast.expr, moves: set[ast.Call] | None = None) -> ast.expr:
    """What is moved, by any move or by one of these: `model` in `model.to(rank)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        if moves is not None and value not in moves:
            break
        value = value.func.value
    return value


def _untrue_comments(context: Context, statement: ast.stmt) -> Iterator[Uncomment]:
    """Comments above the conditions around it that speak of the wrapper by its name, or of several GPUs above nothing else."""
    module = context.module
    wrapped = {module.statement(w.call) for w in context.training.distribution.wrappings if w.module is module}
    empty = set(left_empty(module, statement, wrapped))
    for parent in module.ancestors(statement):
        if not isinstance(parent, ast.If):
            break
        above = comment_above(module.source, parent)
        if "DataParallel" in above or (parent in empty and _SPEAKS_OF_WRAPPING.search(above)):
            yield Uncomment(parent)


_BARE = "nothing prepares this model, and it runs without a wrapper"
_BUFFERS = (
    "nothing prepares this model, so no wrapper gives all processes the buffers of the main one: where it runs in training mode, "
    "running statistics of batch normalisation are each process's own; they stay alike in eval() alone"
)
_SPLIT = (
    "DataParallel split each batch over the GPUs; now each process takes a batch of its own, so N processes train on N "
    "times the batch: divide batch_size by the number of processes to keep it"
)
_IN_FORWARD = (
    "data_parallel ({}) spreads a batch over GPUs by their numbers: those of other processes too, and every process but the "
    "first stops with an error; let it have one GPU where N processes run"
)
_EXCHANGED = (
    "there is no wrapper that reads this: gradients are exchanged in each backward pass, with the same result; to exchange "
    "them once, run the forward and backward passes before the last under accelerator.no_sync(model)"
)
RULE = Rule(
    code=CODE,
    summary="DistributedDataParallel and DataParallel go",
    why="`prepare` returns the model itself, on one process and on many, so `.module` goes. (With `--target accelerate` the "
    "model is wrapped on several processes, and `.module` becomes `unwrap_model`, which is right on both.) The options of "
    "DistributedDataParallel are handed on by DistributedDataParallelKwargs; `find_unused_parameters` to "
    "Accelerate alone, since here each loss shows which weights it came through.",
    example_before="model = DDP(model, device_ids=[rank])\nmodel.module.freeze()",
    example_after="model.freeze()",
    find=find,
)
