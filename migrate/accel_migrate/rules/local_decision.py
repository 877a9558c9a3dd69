"""AM806: what ends a training must be decided alike on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.running import running_figures
from accel_migrate.analysis.scopes import Module
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM806"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    names = {figure.name for figure in running_figures(training.loops, training.backwards) if figure.module is module}
    names |= _loss_names(context)
    for node in module.walk(module.tree):
        if isinstance(node, ast.If) and _ends(module, node) and training.timing.after_prepare(module, node):
            read = [
                n for n in ast.walk(node.test) if isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) in names
            ]
            if read:
                message = (
                    f"`{ast.unparse(read[0])}` is this process's own, so processes may part here and then wait for each other "
                    f'for ever; decide on accelerator.reduce(..., "mean") of it, which is the same on all'
                )
                yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)


def _loss_names(context: Context) -> set[str]:
    """Names set from a loss outside of any loader loop: `loss = output.item()`."""
    losses = {ast.unparse(b.loss) for b in context.training.backwards if b.module is context.module}
    found = set(losses)
    for backward in context.training.backwards:
        if backward.module is context.module:
            for statement in context.module.block(context.module.statement(backward.call)):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                    if any(isinstance(n, ast.Name) and n.id in losses for n in ast.walk(statement.value)):
                        found |= {n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name)}
    return found


def _ends(module: Module, node: ast.If) -> bool:
    return any(
        isinstance(inner, ast.Break) or (isinstance(inner, ast.Call) and _exits(inner.func))
        for statement in node.body
        for inner in module.walk(statement)
    )


def _exits(function: ast.expr) -> bool:
    """`exit`, `quit` or `sys.exit`."""
    if isinstance(function, ast.Attribute) and function.attr == "exit":
        return isinstance(function.value, ast.Name) and function.value.id == "sys"
    return isinstance(function, ast.Name) and function.id in ("exit", "quit")


RULE = Rule(
    code=CODE,
    name="local_decision",
    summary="a way out of training that hangs on this process's own loss",
    why="Processes meet in every backward pass. One that has left the loop is waited for by the others.",
    example_before="if loss.item() < 1e-3:\n    break",
    example_after="if loss.item() < 1e-3:\n    break",
    find=find,
    safety=Safety.NOTE,
)
