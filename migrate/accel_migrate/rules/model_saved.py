"""AM501: weights are saved once, by the main process, with keys that any number of processes can load."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.files import Save
from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.storage import StateTaken
from accel_migrate.edits import change, replace_callee, replace_node
from accel_migrate.effects import only_reads
from accel_migrate.plan import Change, Edit, Guard, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM501"
_SAVES = re.compile(r"(^|_)(save|saves|checkpoint|dump)(_|$)", re.I)


def find(context: Context) -> Iterator[Change]:
    storage, module = context.training.storage, context.module
    ahead: set[StateTaken] = set()
    for save in storage.saves:
        if save.module is module:
            yield _saved(context, save, ahead)
    yield from _handed_to_helpers(context)
    for taken in storage.taken:
        if taken.module is not module or taken in ahead or taken.call in context.training.gone:
            continue
        guard = context.training.distribution.guard_of(module, taken.call)
        if guard is not None and _is_asked_by_all(context, guard):
            edits = _taken_ahead(context, guard, taken)
            yield change(CODE, taken.call, "all processes collect the weights", edits, loop=context.training.index)
        else:
            spelled = context.training.accelerator(module, taken.call)
            state = f"{spelled}.get_state_dict({module.source.code(taken.owner)})"
            edit = replace_node(module.source, taken.call, state)
            yield change(CODE, taken.call, "weights without a wrapper's prefix", [edit], loop=context.training.index)


def _handed_to_helpers(context: Context) -> Iterator[Change]:
    """`save_checkpoint({"net": net, ...})`: what a helper takes the state of must be the model itself."""
    module, training = context.module, context.training
    for call in module.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if not _SAVES.search(name) or module.qualified(call.func) is not None:
            continue
        for argument in (*call.args, *[keyword.value for keyword in call.keywords]):
            for value in argument.values if isinstance(argument, ast.Dict) else ():
                spelled = training.ready(module, value)
                variable = module.variable(value)
                if spelled is None or not training.holds(variable) or not training.timing.after_prepare(module, value):
                    continue
                if context.script.roles.of(variable) & Role.MODEL:
                    text = f"{spelled}.unwrap_model({module.source.code(value)})"
                    edit = replace_node(module.source, value, text)
                    yield change(CODE, value, "the model itself is saved", [edit], loop=training.index)


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
    asked = _beside_main(context, statement)
    if asked:
        collected = f"if {asked}:\n    {collected}"
    return [Insert(statement, (collected,), "before"), replace_node(module.source, taken.call, name)]


def _is_asked_by_all(context: Context, guard: ast.If) -> bool:
    """Whether all processes can ask what a guard asks beside the main process: none of it is known to that one alone."""
    module, distribution = context.module, context.training.distribution
    if not isinstance(guard.test, ast.BoolOp):
        return True
    others = [part for part in guard.test.values if not distribution.asks_for_main(part)]
    for node in (node for part in others for node in module.walk(part)):
        variable = module.variable(node) if isinstance(node, ast.Name | ast.Attribute) else None
        bindings = module.bindings(variable) if variable is not None else []
        if any(distribution.runs_on_main_only(module, binding.statement) for binding in bindings):
            return False
    return len(others) < len(guard.test.values) and all(only_reads(part) for part in others)


def _beside_main(context: Context, statement: ast.stmt) -> str:
    """What a main-process guard asks besides: `epoch % 5 == 0` in `rank == 0 and epoch % 5 == 0`."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.BoolOp):
        return ""
    parts = [p for p in statement.test.values if not context.training.distribution.asks_for_main(p)]
    return " and ".join(context.module.source.code(part) for part in parts)


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
