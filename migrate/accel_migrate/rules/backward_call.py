"""AM301: the backward pass goes through the Accelerator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.loops import Backward
from accel_migrate.edits import change, opening_bracket, replace_callee
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule
from accel_migrate.source import Source

CODE = "AM301"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for backward in training.backwards:
        if backward.module is not module:
            continue
        spelled = training.accelerator(module, backward.call)
        if backward.function_form:
            edits: list[Edit] = [replace_callee(module.source, backward.call, f"{spelled}.backward")]
        else:
            edits = _turned(module.source, backward, f"{spelled}.backward(")
        yield change(context, CODE, backward.call, "the Accelerator runs the backward pass", edits)


def _turned(source: Source, backward: Backward, opening: str) -> list[Edit]:
    """`loss.backward(args)` becomes `accelerator.backward(loss, args)`, with one pair of brackets around the loss."""
    call, loss = backward.call, backward.loss
    has_arguments = bool(call.args or call.keywords)
    bracket = opening_bracket(source, call)
    bare = not isinstance(loss, ast.NamedExpr | ast.GeneratorExp | ast.Starred)
    start = source.start(loss) if bare else source.start(call)
    end = source.end(loss) if bare else bracket - len(".backward")
    return [
        Replace(source.start(call), start, opening),
        Replace(end, bracket + 1, ", " if has_arguments else ""),
    ]


RULE = Rule(
    code=CODE,
    summary="`loss.backward()` becomes `accelerator.backward(loss)`",
    why="The Accelerator scales the loss under fp16, averages gradients over processes, and hands over to engines that "
    "run the backward pass themselves. Keyword arguments are passed on.",
    example_before="loss.backward(retain_graph=True)",
    example_after="accelerator.backward(loss, retain_graph=True)",
    find=find,
)
