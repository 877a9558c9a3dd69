"""AM501: weights are saved once, by the main process, with keys that any number of processes can load."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.files import Save
from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.storage import StateTaken
from accel_migrate.edits import change, replace_callee, replace_node
from accel_migrate.plan import Change, Edit, Guard, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM501"


def find(context: Context) -> Iterator[Change]:
    storage, module = context.training.storage, context.module
    ahead: set[StateTaken] = set()
    for save in storage.saves:
        if save.module is module:
            yield _saved(context, save, ahead)
    for taken in storage.taken:
        if taken.module is not module or taken in ahead or taken.call in context.training.gone:
            continue
        guard = context.training.distribution.guard_of(module, taken.call)
        if guard is not None:
            edits = _taken_ahead(context, guard, taken)
            yield change(CODE, taken.call, "all processes collect the weights", edits, loop=context.training.index)
        else:
            spelled = context.training.accelerator(module, taken.call)
            state = f"{spelled}.get_state_dict({module.source.code(taken.owner)})"
            edit = replace_node(module.source, taken.call, state)
            yield change(CODE, taken.call, "weights without a wrapper's prefix", [edit], loop=context.training.index)


def _saved(context: Context, save: Save, ahead: set[StateTaken]) -> Change:
    module, training = context.module, context.training
    spelled = training.accelerator(module, save.call)
    edits: list[Edit] = [
        replace_node(module.source, whole, f"{spelled}.unwrap_model({module.source.code(whole)})")
        for whole in _whole_models(context, save)
    ]
    if save.plain:
        edits.append(replace_callee(module.source, save.call, f"{spelled}.save"))
    else:
        # `accelerator.save` takes a path; an open file, or options of the pickle, stay and get a guard.
        statement = save.opened or module.statement(save.call)
        edits.append(Guard(statement, f"{spelled}.is_main_process"))
        for taken in training.storage.taken:
            if taken.module is module and any(parent is statement for parent in module.ancestors(taken.call)):
                edits += _taken_ahead(context, statement, taken)
                ahead.add(taken)
    return change(CODE, save.call, "one process writes the file", edits, loop=training.index)


def _taken_ahead(context: Context, statement: ast.stmt, taken: StateTaken) -> list[Edit]:
    """The weights are collected in front of the guard, by all processes."""
    module = context.module
    spelled = context.training.accelerator(module, taken.call)
    name = f"{module.source.code(taken.owner).rpartition('.')[2]}_state"
    while module.resolve(name, module.scope(taken.call)) is not None:
        name += "_dict"
    collected = f"{name} = {spelled}.get_state_dict({module.source.code(taken.owner)})"
    return [Insert(statement, (collected,), "before"), replace_node(module.source, taken.call, name)]


def _whole_models(context: Context, save: Save) -> Iterator[ast.expr]:
    """Prepared models that are saved as they are: `torch.save(model, ...)`, or as a value of a dictionary."""
    values = [save.value]
    if isinstance(save.value, ast.Dict):
        values = [*save.value.values]
    for value in values:
        variable = context.module.variable(value) if value is not None else None
        if value is not None and context.training.holds(variable) and context.script.roles.of(variable) & Role.MODEL:
            yield value


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
