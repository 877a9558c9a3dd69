"""AM202: what nobody else moves (helper models, tensors made in the loop) still is moved, to the right device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.devices import Move
from accel_migrate.analysis.roles import Role
from accel_migrate.edits import change, opening_bracket, replace_node
from accel_migrate.plan import Change, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM202"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    source = module.source
    for move in training.kept:
        if move.module is not module:
            continue
        if move.device is not None and module.variable(move.device) is not None:
            if _is_cuda_call(context, move):
                start = source.end(move.call.func) - len("cuda")
                edit = Replace(start, start + len("cuda"), "to")
                yield change(CODE, move.call, "moves to the device, whatever it is", [edit], loop=training.index)
            continue
        spelled = training.accelerator(module, move.call)
        if spelled is None:
            continue
        target = f"{spelled}.device"
        if move.device is not None:
            edits = [replace_node(source, move.device, target)]
        else:
            start = source.end(move.call.func) - len("cuda")
            bracket = opening_bracket(source, move.call)
            rest = ", " if move.call.keywords else ""
            edits = [Replace(start, bracket + 1, f"to({target}{rest}")]
        yield change(CODE, move.call, "moves to this process's device", edits, loop=training.index)


def _is_cuda_call(context: Context, move: Move) -> bool:
    """`x.cuda(device)`, which only takes devices of that kind, with the variable that the Accelerator's device goes into."""
    assert isinstance(move.call.func, ast.Attribute) and move.device is not None
    variable = context.module.variable(move.device)
    return move.call.func.attr == "cuda" and bool(context.script.roles.of(variable) & Role.DEVICE)


RULE = Rule(
    code=CODE,
    name="other_move",
    summary="keep the moves of what is not prepared, to the Accelerator's device",
    why="`.cuda()` and `.to('cuda:0')` put the data of every process on one card, and fail where there is none.",
    example_before="teacher = build_teacher().cuda()",
    example_after="teacher = build_teacher().to(accelerator.device)",
    find=find,
)
