"""AM101: the Accelerator is imported and made, where the script chose its device or right before it is first needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.placement.agreed_names import broadcast
from accel_migrate.analysis.placement.starts import Start
from accel_migrate.analysis.values.origins import Where, of_any
from accel_migrate.edits import change, note
from accel_migrate.emit import accelerator_name, accelerator_statement, imported_names
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first
from accel_migrate.import_lines import import_line
from accel_migrate.plan import Change, Edit, Insert, Remove, Replace, Substitute
from accel_migrate.rule import Context, Rule

CODE = "AM101"


def find(context: Context) -> Iterator[Change]:
    yield from _texts(context)
    training, module = context.training, context.module
    start = training.start
    if start.module is not module or not training.makes_accelerator:
        return
    names = ", ".join(imported_names(context))
    edits: list[Edit] = [import_line(module, start.statement, f"from {context.settings.target} import {names}")]
    made = (accelerator_statement(context), *training.rebound)
    device = training.device
    takes_place = device is not None and device.statement is start.statement
    kept = f"{device.variable.name} = {accelerator_name(context)}.device" if device is not None else ""
    if takes_place:
        new = (*made, kept) if training.needs_device else made
        edits.append(Substitute(start.statement, new))
        message = "the Accelerator chooses the device"
    elif start.stays:
        edits.append(Insert(start.statement, (*made, kept) if training.needs_device else made, "before"))
        message = "the Accelerator takes the device that is chosen above"
    elif device is not None and device.module is module and _is_above(module, device.statement, start):
        new = (*made, kept) if training.needs_device else made
        edits += [Remove(device.statement), Insert(start.statement, new, "before")]
        message = "the Accelerator chooses the device"
    else:
        if not start.at_prepare:
            edits.append(Insert(start.statement, made, "before", above_comments=not start.joins))
        message = "the Accelerator is made"
        if device is not None and device.module is module:
            edits.append(Substitute(device.statement, (kept,)) if training.needs_device else Remove(device.statement))
    if device is not None and not start.stays:
        edits += [Remove(statement) for statement in device.later]
    if training.agrees:
        named = " and ".join(f"`{own.name}`" for own in training.own_names)
        message += f"; all processes take the main process's {named}"
        for own in training.own_names:
            edits += [Insert(own.below, broadcast((own,)), "after")] if own.below is not None else []
    yield change(context, CODE, start.statement, message, edits)
    if start.device is not None and _is_picked(context):
        yield note(context, CODE, start.statement, _meaning(context, start.device))
    if start.tied is not None:
        told = (
            f"the script moves nothing to a GPU and {start.tied}, so cpu=True keeps the model there; to use a GPU take it out, "
            "and put what the script makes itself on accelerator.device"
        )
        yield note(context, CODE, start.statement, told)
    if start.moves:
        told = (
            "the script moves nothing, so it trained on the CPU; the Accelerator takes a GPU where there is one: to stay on the "
            "CPU, make it with cpu=True"
        )
        yield note(context, CODE, start.statement, told)


def _is_picked(context: Context) -> bool:
    """Whether the device that the script keeps may have a number: it is not plainly the machine's GPU or the CPU."""
    moves = (*context.training.dropped, *context.training.kept)
    named = [(move.module, move.device) for move in moves if move.device is not None]
    meant = of_any(context.script.roles, named)
    return not meant or bool(meant & (Where.NUMBERED | Where.UNKNOWN))


def _meaning(context: Context, chosen: str) -> str:
    """What the script's own choice means from now on."""
    if context.settings.target == "accelerate":
        return (
            f"`{chosen}` still asks for the CPU, but Accelerate takes no other device by its name: set CUDA_VISIBLE_DEVICES to "
            "train on another GPU than the first"
        )
    return (
        f"on one process `{chosen}` is the device, as before; on N processes each has a GPU of its own, and a number in it "
        "does not count"
    )


def _is_above(module: Module, statement: ast.stmt, start: Start) -> bool:
    """Whether a statement comes before the Accelerator, which `prepare` does not bring along."""
    return not start.at_prepare and comes_first(module, statement, start.statement)


def _texts(context: Context) -> Iterator[Change]:
    """`device == "cuda"` asks for the type of the device, once that is no longer a text."""
    training, source = context.training, context.module.source
    for module, node in training.device_texts:
        handed = training.reach.parameters.get(module.scope(node).function)  # type: ignore[arg-type]
        if module is context.module and (handed is None or handed.device != source.code(node)):
            edit = Replace(source.end(node), source.end(node), ".type")
            yield change(context, CODE, node, "the device is asked for by its type", [edit])


RULE = Rule(
    code=CODE,
    summary="import and make the Accelerator where the script chose its device",
    why="The Accelerator knows how the script was launched and gives each process its own device; one that is chosen "
    "by hand puts every process on the same. A request for the CPU (`--no-cuda`) is kept as `cpu=`, also that of a script that "
    "knows of Apple's GPU (mps) and the CPU alone, and a device that the user picks (`--device cuda:1`) as `device=`; None, "
    "which moves nothing, is the CPU. A script that knows of no device and makes tensors of its own stays on the CPU.",
    example_before='device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    example_after="accelerator = Accelerator()",
    find=find,
)
