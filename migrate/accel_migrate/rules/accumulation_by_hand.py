"""AM306: gradients that are accumulated by hand stay so, and the other form is named."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import note
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM306"


def find(context: Context) -> Iterator[Change]:
    module = context.module
    seen: set[ast.If] = set()
    for call in module.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or not _steps_optimizer(context, call):
            continue
        condition = _every_few(context, call)
        if condition is not None and condition[0] not in seen:
            found, every = condition
            seen.add(found)
            yield note(context, CODE, found, _message(every))


def _steps_optimizer(context: Context, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    owners = [call.func.value, *call.args]
    roles = context.script.roles
    return any(roles.of(context.module.variable(owner)) & Role.OPTIMIZER for owner in owners)


def _every_few(context: Context, call: ast.Call) -> tuple[ast.If, str] | None:
    """The `if (step + 1) % k == 0` around a step whose backward pass stands outside of it."""
    module = context.module
    for parent in module.ancestors(call):
        if isinstance(parent, ast.For | ast.While | ast.FunctionDef):
            return None
        if isinstance(parent, ast.If):
            inside = set(module.walk(parent))
            rests = [n for n in module.walk(parent.test, ast.BinOp) if isinstance(n.op, ast.Mod)]
            if rests and not any(b.call in inside for b in context.training.backwards):
                return parent, module.source.code(rests[0].right)
    return None


def _message(every: str) -> str:
    return (
        "gradients are accumulated by hand and stay so: right on any number of processes, but exchanged at every batch; "
        f"Accelerator(gradient_accumulation_steps={every}) and `with accelerator.accumulate(model):` exchange them once. "
        f"It divides the loss by {every}: then a division by hand and this condition must go, and a loss that is not divided "
        f"must be multiplied by {every}"
    )


RULE = Rule(
    code=CODE,
    summary="accumulation by hand is kept",
    why="The loss is divided and the optimizer steps every few batches, as before: the arithmetic is the script's. "
    "`accelerator.accumulate` also steps on the last, incomplete group of an epoch, which most scripts drop, so the two are not "
    "the same. Both at once would divide twice.",
    example_before="if (step + 1) % 4 == 0:\n    optimizer.step()",
    find=find,
    safety=Safety.NOTE,
)
