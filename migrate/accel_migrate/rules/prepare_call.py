"""AM102: one `prepare` takes models, optimizers, per-batch schedulers and loaders, and rebinds the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.optimizers import bare_weights
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change
from accel_migrate.emit import accelerator_statement
from accel_migrate.plan import Change, Insert, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM102"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    place = training.place
    if place.module is not module:
        return
    spelled = training.accelerator(module, place.after)
    apart = {built for built, _ in place.apart}
    together = [built for built in training.prepared if built not in apart]
    names = [built.text for built in together]
    placed = [built.variable not in training.unplaced for built in together]
    more = "" if all(placed) else f"device_placement={placed}"
    text = _call(names, f"{spelled}.prepare", more, _width(context), _indent(context))
    statements = (
        (accelerator_statement(context), *training.rebound, text)
        if training.start.at_prepare and training.makes_accelerator
        else (text,)
    )
    compound = isinstance(place.after, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.FunctionDef)
    edit = Insert(place.after, statements, "after", blank_before=compound)
    stays = "" if all(placed) else "; what the script does not move of a batch stays on the CPU"
    yield change(CODE, place.after, f"prepares {', '.join(names)}{stays}", [edit], loop=training.index)
    for built, statement in place.apart:
        alone = Insert(statement, (f"{built.text} = {spelled}.prepare({built.text})",), "after")
        message = f"prepares {built.text} where it is built: it exists only under a condition"
        yield change(CODE, statement, message, [alone], loop=training.index)
    yield from _of_no_model(context)


def _of_no_model(context: Context) -> Iterator[Change]:
    training = context.training
    optimizers = [built.variable for built in training.prepared if built.role & Role.OPTIMIZER]
    found = [weight for optimizer in optimizers for weight in bare_weights(context.script.roles, optimizer)]
    for module, name in found[:1]:
        if module is context.module:
            names = ", ".join(dict.fromkeys(f"`{name.id}`" for _, name in found))
            message = (
                f"{names}: trained and of no model, so prepare() is not handed it: its gradients are averaged with those of "
                "the prepared optimizer, and --strategy fsdp refuses it; there, make it a parameter of a model"
            )
            yield change(CODE, name, message, loop=training.index, safety=Safety.NOTE)


def _call(names: list[str], function: str, more: str, width: int, indent: int) -> str:
    joined = ", ".join(names)
    handed = f"{joined}, {more}" if more else joined
    line = f"{joined} = {function}({handed})"
    if len(line) + indent <= width:
        return line
    return f"{joined} = {function}(\n    {handed}\n)"


def _width(context: Context) -> int:
    """As wide as the author writes, within reason."""
    longest = max((len(line) for line in context.module.source.text.splitlines()), default=0)
    return min(120, max(88, longest))


def _indent(context: Context) -> int:
    return context.training.place.after.col_offset


RULE = Rule(
    code=CODE,
    name="prepare_call",
    summary="hand models, optimizers, per-batch schedulers and loaders to one `prepare` call",
    why="`prepare` shares the batches out among processes, averages gradients and places everything on the device. It "
    "comes after all that builds or changes the objects (weights loaded, layers frozen) and before the first loop. "
    "A scheduler that steps once per epoch, or with a metric, stays out: it counts epochs, not batches.",
    example_before="optimizer = SGD(model.parameters(), lr=0.1)",
    example_after="optimizer = SGD(model.parameters(), lr=0.1)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    find=find,
)
