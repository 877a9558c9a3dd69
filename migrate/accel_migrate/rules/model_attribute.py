"""AM105: parts and methods of a prepared model are asked of the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.weights_by_hand import weights_by_hand
from accel_migrate.analysis.values.made_of import runs_layers
from accel_migrate.edits import change, replace_node
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM105"


def find(context: Context) -> Iterator[Change]:
    training, source = context.training, context.module.source
    yield from _past_forward(context)
    yield from _by_hand(context)
    for asked in training.model_attributes if training.wraps_models else ():
        module, node, model = asked
        if module is not context.module or node in training.gone:
            continue
        spelled = training.ready(module, model)
        owner = source.code(model)
        part = asked.text
        if spelled is None:
            message = (
                f"`{owner}` is wrapped on several processes, and {part} then meets the wrapper; hand over "
                f"accelerator.unwrap_model({owner})"
            )
            yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)
        else:
            edit = replace_node(source, model, f"{spelled}.unwrap_model({owner})")
            message = (
                f"{part} of the model itself" if isinstance(node, ast.Call) else f"{part} belongs to the model itself"
            )
            yield change(CODE, node, message, [edit], loop=training.index)


def _past_forward(context: Context) -> Iterator[Change]:
    """One note for a file, at the first call that runs layers of the model by another way than its forward."""
    training = context.training
    registered = {name for _, name in training.forward_methods}
    module = context.module
    asked = [node for owner, node, _ in training.model_attributes if owner is module]
    taken_out = [
        p.node for p in training.distribution.replacements if p.module is module and isinstance(p.node, ast.expr)
    ]
    asked += [
        module.parents[node]  # type: ignore[misc]
        for node in taken_out
        if node in training.distribution.unwrapped and training.timing.after_prepare(module, node)
    ]
    for node in asked:
        above = module.parents[node]
        if not isinstance(node, ast.Attribute) or not isinstance(above, ast.Call) or above.func is not node:
            continue
        past = above in training.loss_parts or runs_layers(context.script.roles, context.script.graph, module, node)
        if node.attr not in registered and past:
            way = ""
            if context.settings.target != "accelerate":
                way = ", or from a method that accelerator.register_forward_method(model, name) registers"
            message = (
                f"`{node.attr}` runs layers past the model's forward; FSDP gathers their weights for a forward alone, so "
                f"that it may fail there: call it from forward(){way}"
            )
            yield change(CODE, node, message, loop=training.index, safety=Safety.NOTE)
            return


def _by_hand(context: Context) -> Iterator[Change]:
    """One note for a file, at the first line that takes weights by hand."""
    calls = weights_by_hand(context.script, context.training, context.module)
    if calls:
        lines = list(dict.fromkeys(str(call.lineno) for call in calls))
        where = f"line{'s' if len(lines) > 1 else ''} {', '.join(lines)}"
        message = (
            "under --strategy fsdp or ZeRO 3 each process holds a part of every weight, and what reads weights by hand or mixes "
            f"them with those of a model that is not prepared stops there, or sees that part alone: {where}; take them from "
            "accelerator.get_state_dict(model), on all processes"
        )
        yield change(CODE, calls[0], message, loop=context.training.index, safety=Safety.NOTE)


RULE = Rule(
    code=CODE,
    name="model_attribute",
    summary="for Accelerate: ask the model itself, not its wrapper, for its parts",
    why="Here `prepare` returns the model itself, on one process and on many, and its parts are asked for as before. With "
    "`--target accelerate` it is wrapped on several processes, and the wrapper has none of the model's own parts and methods; "
    "`unwrap_model` gives the model back. A note names layers that run past `forward`, which FSDP does not gather, and lines "
    "that take numbers of weights by hand, which are sharded there.",
    example_before="weight = model.fc.weight",
    example_after="weight = accelerator.unwrap_model(model).fc.weight",
    find=find,
)
