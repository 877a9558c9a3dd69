"""AM501: a file is written once, by the main process, with weights that any number of processes can load."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.roles import Role
from accel_migrate.edits import change, replace_callee, replace_node
from accel_migrate.plan import Change, Edit
from accel_migrate.rule import Context, Rule

CODE = "AM501"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    source = module.source
    for call in module.calls:
        spelled = training.accelerator(module, call)
        if spelled is None:
            continue
        if module.qualified(call.func) == "torch.save":
            edits: list[Edit] = [replace_callee(source, call, f"{spelled}.save")]
            if call.args and training.holds(module.variable(call.args[0])):
                edits.append(replace_node(source, call.args[0], f"{spelled}.unwrap_model({source.code(call.args[0])})"))
            yield change(CODE, call, "one process writes the file", edits, loop=training.index)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict" and not call.args:
            owner = call.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == "module":
                owner = owner.value
            if training.holds(module.variable(owner)) and _is_model(context, owner):
                edits = [replace_node(source, call, f"{spelled}.get_state_dict({source.code(owner)})")]
                yield change(CODE, call, "weights without a wrapper's prefix", edits, loop=training.index)


def _is_model(context: Context, node: ast.expr) -> bool:
    return bool(context.script.roles.role(context.module, node) & Role.MODEL)


RULE = Rule(
    code=CODE,
    name="model_saved",
    summary="save through the Accelerator",
    why="Every process runs the script, and only one may write a file. `get_state_dict` is called by all: under "
    "FSDP and ZeRO the weights are collected from all; its keys have no `module.` in front.",
    example_before='torch.save(model.state_dict(), "model.pt")',
    example_after='accelerator.save(accelerator.get_state_dict(model), "model.pt")',
    find=find,
)
