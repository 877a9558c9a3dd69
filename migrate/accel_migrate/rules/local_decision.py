"""AM806: what training depends on is decided alike on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.decisions import Decision
from accel_migrate.edits import change, quoted, replace_node
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Edit, Insert, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM806"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for decision in training.decisions:
        if decision.module is not module:
            continue
        name = unparse(decision.figure)
        spelled = training.accelerator(module, decision.place)
        if not decision.is_number or spelled is None:
            message = (
                f"`{name}` is this process's own, so processes may part here and then wait for each other for ever; decide on "
                'accelerator.reduce(..., "mean") of a number, which is the same on all'
            )
            yield change(CODE, decision.node, message, loop=training.index, safety=Safety.NOTE)
            continue
        message = f"all processes decide alike: `{name}` is averaged over them"
        yield change(CODE, decision.node, message, [_averaged(context, decision, spelled)], loop=training.index)


def _averaged(context: Context, decision: Decision, accelerator: str) -> Edit:
    module, figure = context.module, decision.figure
    name = module.source.code(figure)
    mean = quoted(module.source, "mean")
    if decision.is_tensor:
        return replace_node(module.source, figure, f"{accelerator}.reduce({name}.detach(), {mean})")
    if decision.of_tensor and isinstance(figure, ast.Call) and isinstance(figure.func, ast.Attribute):
        tensor = module.source.code(figure.func.value)
        return replace_node(module.source, figure, f"{accelerator}.reduce({tensor}.detach(), {mean}).item()")
    # Doubles keep a Python number as it is: on one process nothing may be rounded.
    kept = f"device={accelerator}.device" if context.settings.target == "accelerate" else "dtype=torch.float64"
    number = name if decision.is_plain else f"float({name})"
    averaged = f"{accelerator}.reduce(torch.tensor({number}, {kept}), {mean}).item()"
    if decision.after is not None:
        return Insert(decision.after, (f"{name} = {averaged}",), "after")
    if decision.before is not None:
        return Insert(decision.before, (f"{name} = {averaged}",), "before")
    return replace_node(module.source, figure, averaged)


RULE = Rule(
    code=CODE,
    name="local_decision",
    summary="a decision on this process's own loss: a scheduler that waits for a plateau, an early end, the best weights",
    why="Processes meet in every backward pass. One that has left the loop is waited for by the others, and one that has "
    "lowered its learning rate trains other weights. Averaged over processes, the figure is the same on all.",
    example_before="if loss.item() < 1e-3:\n    break",
    example_after='if accelerator.reduce(loss.detach(), "mean").item() < 1e-3:\n    break',
    find=find,
)
