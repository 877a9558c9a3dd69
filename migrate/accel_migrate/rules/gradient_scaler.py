"""AM304: the Accelerator keeps the GradScaler, so the script's own goes, with all that speaks of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.values.roles import arguments_of
from accel_migrate.analysis.values.sources import contents
from accel_migrate.edits import change, comment_above, left_empty, note, replace_node, without
from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Module
from accel_migrate.items import without_items
from accel_migrate.plan import Change, Edit, Uncomment, Unwrap
from accel_migrate.rule import Context, Rule

CODE = "AM304"
_SPEAKS_OF_SCALING = re.compile(r"(un)?scal(e[rs]?|ing)\b|GradScaler|mixed precision|\bamp\b", re.I)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    scaling = training.precision.scaling
    source = module.source
    gone = {statement for owner, statement in scaling.gone if owner is module}
    for owner, statement in scaling.gone:
        if owner is module:
            empty = [
                a for a in left_empty(module, statement, gone) if _SPEAKS_OF_SCALING.search(comment_above(source, a))
            ]
            edits: list[Edit] = [without(source, statement, _SPEAKS_OF_SCALING), *map(Uncomment, empty)]
            yield _change(context, statement, "the Accelerator keeps the scaler", *edits)
    for owner, call in scaling.steps:
        if owner is module:
            edit: Edit = replace_node(source, call, f"{source.code(call.args[0])}.step()")
            yield _change(context, call, "the prepared optimizer steps through the scaler", edit)
    for owner, call in scaling.unscaled:
        if owner is module:
            yield _unscaled(context, call)
    for owner, choice in scaling.choices:
        if owner is module and choice.orelse:
            yield _change(context, choice, "both branches are the same with the Accelerator", Unwrap(choice))
    yield from _parameters(context)
    yield from _on_the_cpu(context)
    yield from _of_one_scale(context)
    for owner, call in scaling.definitions if context.settings.target == "accelerate" else ():
        if owner is module and training.schedules_skipped_steps:
            yield note(context, CODE, call, _SCHEDULE)


_SCHEDULE = (
    "the script's scheduler counts every step, and Accelerate's leaves out those that the scaler skips: after an overflow its "
    "learning rates come later"
)


def _on_the_cpu(context: Context) -> Iterator[Change]:
    """A scaler for CUDA beside an autocast for whatever device there is."""
    precision, module = context.training.precision, context.module
    anywhere = any(r.device is not None and r.dtype is not None and r.disabled is None for r in precision.regions)
    for owner, call in precision.scaling.definitions if anywhere else ():
        if owner is module and not any(keyword.arg == "device" for keyword in call.keywords):
            message = (
                "on the CPU this scaler does nothing; the Accelerator's scales there as well, so that losses are the same "
                "and small gradients are kept"
            )
            yield note(context, CODE, call, message)


def _of_one_scale(context: Context) -> Iterator[Change]:
    """Scalers of which each had a scale of its own, or one that is made anew while the Accelerator goes on."""
    training, graph, module = context.training, context.script.graph, context.module
    scaling = training.precision.scaling
    made: dict[ast.expr, Module] = {call: owner for owner, call in scaling.definitions}
    told = [(b.module, b.scaler) for b in training.backwards if b.scaler is not None]
    of_each = [{call for _, call in contents(graph, *each) if call in made} for each in told]
    apart = any(one and other and one.isdisjoint(other) for one in of_each for other in of_each)
    for call, owner in list(made.items())[-1 if apart else 0 :]:
        if apart or _runs_again(context, owner, call, set()):
            yield from [note(context, CODE, call, _ONE_SCALE if apart else _GOES_ON)] if owner is module else ()
            return


def _runs_again(context: Context, module: Module, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether a place may be come to more than once with one Accelerator."""
    frame = module.scope(node).frame
    if graph_of(module.tree, frame.node).in_loop(module.statement(node)):  # type: ignore[arg-type]
        return True
    if not frame.is_function or frame is context.training.creation or frame.name == "__init__" or frame.node in seen:
        return False
    loaded = context.script.loaded(context.training)
    sites = [each for each in context.script.graph.sites.get(frame.node, ()) if each[0] in loaded]  # type: ignore[call-overload]
    scripts = {owner for owner, _ in sites}
    return len(sites) > len(scripts) or any(_runs_again(context, m, c, {*seen, frame.node}) for m, c in sites)


_ONE_SCALE = (
    "each GradScaler of the script has a scale of its own, and the Accelerator one for all: an overflow with any of them "
    "lowers it for all"
)
_GOES_ON = "the script makes this GradScaler again, with its first scale; the Accelerator has one, which goes on from where it is"


def _change(context: Context, node: ast.AST, message: str, *edits: Edit) -> Change:
    return change(context, CODE, node, message, edits)


def _unscaled(context: Context, call: ast.Call) -> Change:
    """Clipping through the Accelerator unscales; anything else that reads gradients needs it done first."""
    module = context.module
    statement = module.statement(call)
    block = module.block(statement)
    later = block[block.index(statement) + 1 :]
    if any(isinstance(node, ast.Attribute) and node.attr.startswith("clip_grad_") for s in later for node in walk(s)):
        edit = without(module.source, statement, _SPEAKS_OF_SCALING)
        return _change(context, call, "clipping unscales gradients", edit)
    spelled = context.training.accelerator(module, call)
    text = f"{spelled}.unscale_gradients({module.source.code(call.args[0])})"
    return _change(context, call, "the Accelerator unscales gradients", replace_node(module.source, call, text))


def _parameters(context: Context) -> Iterator[Change]:
    """Functions are no longer handed a scaler; where they had no device, the Accelerator takes its place."""
    training, module = context.training, context.module
    scaling = training.precision.scaling
    for function, (owner, name) in scaling.parameters.items():
        new = training.reach.parameters.get(function)
        gone = [name] if new is None or new.replaced != name else []
        gone += scaling.further.get(function, [])
        edits: list[Edit] = []
        if owner is module:
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            parameters = [(each, default_of(function, each.arg) or each) for each in arguments if each.arg in gone]
            edits += without_items(module.source, parameters)
        for caller, call in context.script.graph.sites.get(function, ()) if gone else ():
            if caller is module:
                handed = dict(arguments_of(call, Definition(owner, function)))
                items = [_item(call, value) for each in gone if (value := handed.get(each)) is not None]
                edits += without_items(module.source, [(item, item) for item in items])
        if edits:
            yield _change(context, function, f"{function.name}() needs no scaler", *edits)


def _item(call: ast.Call, value: ast.expr) -> ast.expr | ast.keyword:
    return next((keyword for keyword in call.keywords if keyword.value is value), value)


RULE = Rule(
    code=CODE,
    summary="the GradScaler of the script goes",
    why="Under fp16 the Accelerator scales the loss in `backward`, unscales before it clips, and skips a step whose gradients "
    "overflowed. A second scaler would scale twice.",
    example_before="scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nclip_grad_norm_(model.parameters(), 1.0)\n"
    "scaler.step(optimizer)\nscaler.update()",
    example_after="accelerator.backward(loss)\naccelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    find=find,
)
