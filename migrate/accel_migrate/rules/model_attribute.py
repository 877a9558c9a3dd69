"""AM105: parts and methods of a prepared model are asked of the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.shared_layers import shared_layers
from accel_migrate.analysis.notes.weights_by_hand import weights_by_hand
from accel_migrate.analysis.values.made_of import runs_layers
from accel_migrate.edits import change, note, replace_node
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM105"


def find(context: Context) -> Iterator[Change]:
    training, source = context.training, context.module.source
    yield from _past_forward(context)
    yield from _by_hand(context)
    yield from _twice(context)
    yield from _shared(context)
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
            yield note(context, CODE, node, message)
        else:
            edit = replace_node(source, model, f"{spelled}.unwrap_model({owner})")
            message = (
                f"{part} of the model itself" if isinstance(node, ast.Call) else f"{part} belongs to the model itself"
            )
            yield change(context, CODE, node, message, [edit])


def _past_forward(context: Context) -> Iterator[Change]:
    """One note for a file, at the first call that runs layers of the model by another way than its forward.

    Here they are gathered wherever they run.
    """
    training = context.training
    if not training.wraps_models:
        return
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
        if above in training.loss_parts or runs_layers(context.script.graph, module, node):
            message = (
                f"`{node.attr}` runs layers past the model's forward; FSDP gathers their weights for a forward alone, so "
                "that it may fail there: call it from forward()"
            )
            yield note(context, CODE, node, message)
            return


def _files(context: Context) -> list[Module]:
    """The file; with that of `prepare` also those in which nothing is changed, of which no other note speaks."""
    training, module = context.training, context.module
    others = [each for each in context.script.project.modules if each not in training.modules]
    return [module, *others] if module is training.place.module else [module]


def _first(context: Context, found: list[tuple[Module, ast.Call]]) -> ast.AST:
    return next((call for file, call in found if file is context.module), context.training.place.after)


def _lines(context: Context, found: list[tuple[Module, ast.Call]]) -> str:
    """`lines 3, 5, line 11 of helpers.py`."""
    said = []
    for file in dict.fromkeys(file for file, _ in found):
        lines = list(dict.fromkeys(str(call.lineno) for owner, call in found if owner is file))
        of = f" of {context.script.project.file_name(file)}" if file is not context.module else ""
        said.append(f"line{'s' if len(lines) > 1 else ''} {', '.join(lines)}{of}")
    return ", ".join(said)


def _by_hand(context: Context) -> Iterator[Change]:
    """One note for a file, at the first line that takes weights by hand."""
    script, training = context.script, context.training
    calls = [(file, call) for file in _files(context) for call in weights_by_hand(script, training, file)]
    if calls:
        where = _lines(context, calls)
        if training.wraps_models:
            message = (
                "under FSDP or ZeRO 3 each process holds a part of every weight, and what reads weights by hand or mixes them "
                f"with those of a model that is not prepared stops there, or sees that part alone: {where}"
            )
        else:
            message = (
                f"weights are read by hand or mixed with those of a model that is not prepared ({where}): under --strategy fsdp "
                "they are gathered there, so no condition may keep a process out; under ZeRO 3 each sees its own part alone"
            )
        message += "; accelerator.get_state_dict(model), on all processes, has them whole"
        yield note(context, CODE, _first(context, calls), message)


def _twice(context: Context) -> Iterator[Change]:
    """One note for a file, at the first gradient of which another one is taken."""
    training = context.training
    found = [
        (file, call)
        for file in _files(context)
        for call in file.calls
        if any(keyword.arg == "create_graph" and _may_be_true(keyword.value) for keyword in call.keywords)
        if training.timing.after_prepare(file, call)
    ]
    if found:
        where = f", {_lines(context, found[:1])}" if found[0][0] is not context.module else ""
        message = (
            f"a gradient of this gradient is taken (create_graph{where}); under FSDP the weights are sharded again by then, and "
            "the run stops there: use --strategy ddp"
        )
        yield note(context, CODE, _first(context, found), message)


def _may_be_true(value: ast.expr) -> bool:
    return not isinstance(value, ast.Constant) or bool(value.value)


def _shared(context: Context) -> Iterator[Change]:
    """One note, at the first layer that two prepared models have in common."""
    training = context.training
    found = None if training.wraps_models else next(shared_layers(context.script, training), None)
    if found is not None and found.module is context.module:
        message = (
            f"{found.models[0]} and {found.models[1]} share this layer; fsdp shards a weight for one model, so under --strategy "
            "fsdp the run stops at prepare(): make both parts of one module, whose forward runs both, or use --strategy ddp"
        )
        yield note(context, CODE, found.node, message)


RULE = Rule(
    code=CODE,
    summary="for Accelerate: ask the model itself, not its wrapper, for its parts",
    why="Here `prepare` returns the model itself, on one process and on many, and its parts are asked for as before. With "
    "`--target accelerate` it is wrapped on several processes, and the wrapper has none of the model's own parts and methods; "
    "`unwrap_model` gives the model back. A note there names layers that run past `forward`, which FSDP does not gather. Another "
    "names lines that read weights by hand: with sharded weights all processes must come there. A third names gradients of "
    "gradients, which FSDP2 does not have. A fourth names a layer that two prepared models share, which fsdp refuses.",
    example_before="weight = model.fc.weight",
    example_after="weight = accelerator.unwrap_model(model).fc.weight",
    find=find,
)
