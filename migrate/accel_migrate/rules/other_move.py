"""AM202: what nobody else moves (helper models, tensors made in the loop) still is moved, to the right device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.moves.devices import Move
from accel_migrate.analysis.trainings.bookkeeping import names_device
from accel_migrate.edits import change, drop_method, opening_bracket, replace_node
from accel_migrate.flow.sequence import comes_first
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule
from accel_migrate.source import Source

CODE = "AM202"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    source = module.source
    again = {move.receiver for move in training.kept}
    for move in training.kept:
        if move.module is not module:
            continue
        if move.call in again and not move.kept:  # `x.cuda().to(rank)`
            gone = [drop_method(source, move.call)]
            yield change(context, CODE, move.call, "the move behind it is enough", gone)
            continue
        if names_device(move, training.distribution):
            continue
        spelled = training.accelerator(module, move.call)
        if spelled is not None:
            edits = _edits(source, move, _own_name(context, move) or f"{spelled}.device")
            yield change(context, CODE, move.call, "moves to this process's device", edits)


def _own_name(context: Context, move: Move) -> str | None:
    """The script's own name for the Accelerator's device, where it has one that is read on."""
    device, module = context.training.device, move.module
    if device is None or not context.training.needs_device or device.variable.scope.module is not module:
        return None
    scope = module.scope(move.call)
    known = device.variable.name.isidentifier() and module.resolve(device.variable.name, scope) == device.variable
    above = scope is not device.variable.scope or comes_first(module, device.statement, move.call)
    return device.variable.name if known and above else None


def _edits(source: Source, move: Move, target: str) -> list[Edit]:
    if isinstance(move.call.func, ast.Attribute) and move.call.func.attr == "to":
        assert move.device is not None
        return [replace_node(source, move.device, target)]
    start = source.end(move.call.func) - len("cuda")
    end = source.end(move.device) if move.device is not None else opening_bracket(source, move.call) + 1
    rest = ", " if move.device is None and move.call.keywords else ""
    return [Replace(start, end, f"to({target}{rest}")]


RULE = Rule(
    code=CODE,
    summary="keep the moves of what is not prepared, to the Accelerator's device",
    why="`.cuda()` and `.to('cuda:0')` put the data of every process on one GPU, and fail on a machine without a GPU.",
    example_before="teacher = build_teacher().cuda()",
    example_after="teacher = build_teacher().to(accelerator.device)",
    find=find,
)
