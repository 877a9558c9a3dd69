"""AM506: a pretrained model is written by the main process, with weights that all processes collected."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import add_argument, change
from accel_migrate.flow.torch_api import itself
from accel_migrate.plan import Change, Edit, Guard
from accel_migrate.rule import Context, Rule

CODE = "AM506"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    for call in module.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "save_pretrained":
            continue
        model = itself(call.func.value)
        variable = module.variable(model)
        spelled = training.ready(module, call) if training.timing.after_prepare(module, call) else None
        if spelled is None or not training.holds(variable) or not context.script.roles.of(variable) & Role.MODEL:
            continue
        edit = _edit(context, call, module.source.code(model), spelled)
        yield change(context, CODE, call, "one process writes the model", [edit])


def _edit(context: Context, call: ast.Call, owner: str, spelled: str) -> Edit:
    """The arguments that transformers has for this; a guard where the method is the project's own."""
    if context.script.roles.target(context.module, call) is None and not call.keywords:
        state = f"state_dict={spelled}.get_state_dict({owner})"
        return add_argument(context.module.source, call, f"is_main_process={spelled}.is_main_process, {state}")
    return Guard(context.module.statement(call), f"{spelled}.is_main_process")


RULE = Rule(
    code=CODE,
    summary="`save_pretrained` on the main process, with collected weights",
    why="Every process runs the script, and only one may write. Under FSDP and ZeRO the weights are collected from all, so "
    "get_state_dict is called by all, outside of any guard.",
    example_before='model.save_pretrained("out")',
    example_after='model.save_pretrained("out", is_main_process=accelerator.is_main_process, '
    "state_dict=accelerator.get_state_dict(model))",
    find=find,
)
