"""AM203: a move to a device that the script keeps under a name of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.remains import names_device
from accel_migrate.analysis.scopes import Variable
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM203"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    told: set[tuple[str, int]] = set()
    for move in training.kept:
        variable = module.variable(move.device) if move.module is module and move.device is not None else None
        if variable is None or not names_device(move, training.distribution) or _is_the_accelerators(context, variable):
            continue
        name = module.source.code(move.device)  # type: ignore[arg-type]  # a variable has an expression
        if _is_handed_over(context, variable):
            message = f"`{name}` holds the Accelerator's device, so this move is right as it is"
        elif _is_told(context, name):
            message = f"`{name}` holds the number of this process's card, so this move is right as it is"
        elif _names_no_card(context, variable):
            message = f"`{name}` names no card, and means the one that the Accelerator made current: right as it is"
        else:
            message = (
                f"`{name}` is not set from the Accelerator; set it from its device, or every process uses the same"
            )
        if (name, move.call.lineno) not in told:
            told.add((name, move.call.lineno))
            yield change(CODE, move.call, message, loop=training.index, safety=Safety.NOTE)


def _is_the_accelerators(context: Context, variable: Variable) -> bool:
    """Whether the name itself is set to the Accelerator's device, in this file."""
    device, given = context.training.device, context.training.given
    if device is not None and variable == device.variable:
        return True
    if given is not None and given.variable in chain(context.script.roles, context.script.graph, variable):
        return True
    parameter = context.training.reach.parameters.get(variable.scope.node)  # type: ignore[call-overload]
    return parameter is not None and parameter.device == variable.name


def _is_told(context: Context, name: str) -> bool:
    """Whether a worker, which the script started itself, has the number of its card from the Accelerator."""
    worker = context.training.distribution.worker
    return worker is not None and name in (worker.card, *[ast.unparse(copy.targets[0]) for copy in worker.copies])


def _names_no_card(context: Context, variable: Variable) -> bool:
    """`torch.accelerator.current_accelerator()`, without a number."""
    module = variable.scope.module
    values = [b.value for b in module.bindings(variable) if isinstance(b.value, ast.Call)]
    current = [v for v in values if module.qualified(v.func) == "torch.accelerator.current_accelerator"]
    others = [v for v in values if v not in current and "cpu" not in ast.unparse(v)]
    return bool(current) and not others


def _is_handed_over(context: Context, variable: Variable) -> bool:
    device = context.training.device
    links = chain(context.script.roles, context.script.graph, variable)
    rewritten = {piece.statement for piece in context.training.distribution.pieces}
    if any(binding.statement in rewritten for link in links for binding in link.scope.module.bindings(link)):
        return True
    return device is not None and device.variable in links


RULE = Rule(
    code=CODE,
    name="other_device",
    summary="a move to a device that is kept under another name",
    why="A module that stores its device (`self.device`) goes on using it. It is right when it was given the Accelerator's; "
    "where it is set from something else, every process would use the same device.",
    example_before="mask = torch.ones(n).to(self.device)",
    example_after="mask = torch.ones(n).to(self.device)",
    find=find,
    safety=Safety.NOTE,
)
