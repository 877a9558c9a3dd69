"""AM302: gradients are clipped by the Accelerator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.gradients import Gradients
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, note, replace_callee
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM302"
_CLIPPING = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_norm": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "clip_grad_value_",
}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for call in module.calls_of(_CLIPPING):
        method = _taken_over(context, module, call)
        if method is not None:
            edit = replace_callee(module.source, call, f"{training.accelerator(module, call)}.{method}")
            yield change(
                context, CODE, call, "the Accelerator clips: right under fp16 and sharded gradients too", [edit]
            )
    yield from _by_hand(context)


def _taken_over(context: Context, module: Module, call: ast.Call) -> str | None:
    """The method of the Accelerator that clips in the place of a call."""
    method = _CLIPPING.get(module.qualified(call.func) or "")
    if method is None or context.training.accelerator(module, call) is None:
        return None
    unscaled = not context.training.wraps_models or _step_is_next(context, module, call)
    return method if _clips_prepared(context, module, call) and unscaled else None


def _step_is_next(context: Context, module: Module, node: ast.AST) -> bool:
    """Whether a node stands below a backward pass, and the step is sure to come before another pass.

    Accelerate may unscale gradients only there: after a step that raises, and a later pass would add scaled ones to them.
    """
    function = module.scope(node).function
    passes = {b.call for b in context.training.backwards if b.module is module}
    calls = [call for call in module.calls if module.scope(call).function is function]
    below = [call for call in calls if _stands_above(module, node, call)]
    following = [call for call in below if call in passes or _steps(context, module, call)]
    if not following or following[0] in passes:
        return False
    around = {node, *module.ancestors(node)}
    branches = [above for above in module.ancestors(following[0]) if isinstance(above, ast.If) and above not in around]
    return not branches and any(call in passes and _stands_above(module, call, node) for call in calls)


def _steps(context: Context, module: Module, call: ast.Call) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    return any(context.script.roles.role(module, owner) & Role.OPTIMIZER for owner in (call.func.value, *call.args))


def _stands_above(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """Whether one node stands above another in the innermost block that holds both."""
    statement = module.statement(second)
    around = {statement, *module.ancestors(statement)}
    own = module.statement(first)
    for at in (own, *module.ancestors(own)):
        block = module.block(at) if isinstance(at, ast.stmt) else []
        other = next((each for each in block if each in around), None)
        if other is not None:
            return block.index(at) < block.index(other)  # type: ignore[arg-type]
    return False


def _by_hand(context: Context) -> Iterator[Change]:
    """Work on gradients that stays the script's: they are brought to their true size before it."""
    training, module, script = context.training, context.module, context.script

    def clips(owner: Module, call: ast.Call) -> bool:
        return (owner.qualified(call.func) or "") in _CLIPPING and _taken_over(context, owner, call) is None

    gradients = Gradients(script.graph, clips)
    unscaled = {training_module.statement(call) for training_module, call in training.precision.scaling.unscaled}
    seen: set[ast.stmt] = set()
    for backward in training.backwards:
        found = gradients.read_after(backward) if backward.module is module else None
        if found is None or found.statement in seen:
            continue
        seen.add(found.statement)
        spelled, optimizer = training.accelerator(module, found.statement), found.optimizer
        stepped = optimizer is not None and training.holds(module.variable(optimizer))
        stepped = stepped and (not training.wraps_models or _step_is_next(context, module, found.statement))
        around = (found.statement, *module.ancestors(found.statement))
        beside = [each for at in around if isinstance(at, ast.stmt) for each in module.block(at)]
        if spelled is not None and stepped and optimizer is not None and unscaled.isdisjoint(beside):
            line = f"{spelled}.unscale_gradients({module.source.code(optimizer)})"
            edit = Insert(found.statement, (line,), "before")
            yield change(context, CODE, found.statement, "gradients have their true size under fp16 too", [edit])
            stepped = True
        stepped = stepped or found.in_step or not unscaled.isdisjoint(beside)
        where, read = found.read
        weights = found.of_parameters or not isinstance(read, ast.Attribute) or not _is_made_here(where, read.value)
        line = module.place_of(where, read)
        # Under FSDP here what is done by hand is done with whole ones.
        sharding = "FSDP, ZeRO 2 and 3" if training.wraps_models else "ZeRO 2 and 3"
        message = (
            f"gradients are worked on by hand ({line}), which is right on one process and under DDP"
            + ("" if stepped else ", but not under fp16, where they are scaled")
            + (f"; where they are sharded ({sharding}) each process holds only a part of them" if weights else "")
        )
        yield note(context, CODE, found.statement, message)


def _is_made_here(module: Module, owner: ast.expr) -> bool:
    """Whether what has the gradient is a tensor that torch makes for the script, an input say."""
    values = [b.value for b in (module.bindings_of(owner) if isinstance(owner, ast.Name) else []) if b.kind == "assign"]
    calls = [value for value in values if isinstance(value, ast.Call)]
    return any((module.qualified(call.func) or "").startswith("torch.") for call in calls)


def _clips_prepared(context: Context, module: Module, call: ast.Call) -> bool:
    return bool(call.args) and any(
        context.training.holds(module.variable(node))
        for node in walk(call.args[0])
        if isinstance(node, ast.Name | ast.Attribute)
    )


RULE = Rule(
    code=CODE,
    summary="`clip_grad_norm_` becomes the Accelerator's",
    why="Under fp16 gradients must be unscaled first, and under FSDP or ZeRO each process holds only a part of them. "
    "What a script does to gradients by itself stays; `unscale_gradients` before it does nothing in other precisions.",
    example_before="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    example_after="accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    find=find,
)
