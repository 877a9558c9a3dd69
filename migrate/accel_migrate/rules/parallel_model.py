"""AM702: a model is handed to `prepare` bare: DistributedDataParallel and DataParallel go, and `.module` with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.pieces import Wrapping
from accel_migrate.edits import change, piece_changes, without
from accel_migrate.plan import Change, Edit, Replace, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM702"
_SPEAKS_OF_WRAPPING = re.compile(r"\b(ddp|distributed\w*|data.?parallel|wrap\w*|gpus?)\b", re.I)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for wrapping in training.distribution.wrappings:
        if wrapping.module is module:
            yield change(
                CODE, wrapping.call, "`prepare` wraps the model", _edits(context, wrapping), loop=training.index
            )
            if wrapping.is_data_parallel:
                yield change(CODE, wrapping.call, _SPLIT, safety=Safety.NOTE, loop=training.index)
    yield from piece_changes(context, CODE)


def _edits(context: Context, wrapping: Wrapping) -> list[Edit]:
    module, source, call = context.module, context.module.source, wrapping.call
    statement = module.statement(call)
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target, model = module.variable(statement.targets[0]), module.variable(wrapping.model)
        if target is not None and (target == model or _is_stored(context, statement, wrapping)):
            return [without(source, statement, _SPEAKS_OF_WRAPPING)]
    return [
        Replace(source.start(call), source.start(wrapping.model), ""),
        Replace(source.end(wrapping.model), source.end(call), ""),
    ]


def _is_stored(context: Context, statement: ast.Assign, wrapping: Wrapping) -> bool:
    """`self.model = model.to(rank)` further up: there the model is under that name already."""
    block = context.module.block(statement)
    name, model = ast.unparse(statement.targets[0]), ast.unparse(wrapping.model)
    stored = [
        s for s in block[: block.index(statement)] if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == name
    ]
    if not stored:
        return False
    value = stored[-1].value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        value = value.func.value
    return ast.unparse(value) == model


_SPLIT = (
    "DataParallel split each batch over the cards; now each process takes a batch of its own, so N processes train on N "
    "times the batch: divide batch_size by the number of processes to keep it"
)
RULE = Rule(
    code=CODE,
    name="parallel_model",
    summary="DistributedDataParallel and DataParallel go",
    why="`prepare` wraps the model on several processes and leaves it bare on one. `.module` becomes `unwrap_model`, which is "
    "right on both. What DistributedDataParallel was told is handed on by DistributedDataParallelKwargs.",
    example_before="model = DDP(model, device_ids=[rank])\nmodel.module.freeze()",
    example_after="accelerator.unwrap_model(model).freeze()",
    find=find,
)
