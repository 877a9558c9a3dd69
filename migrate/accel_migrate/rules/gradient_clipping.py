"""AM302: gradients are clipped by the Accelerator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.edits import change, replace_callee
from accel_migrate.plan import Change
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
    for call in module.calls:
        method = _CLIPPING.get(module.qualified(call.func) or "")
        spelled = training.accelerator(module, call) if method is not None else None
        if spelled is None or not _clips_prepared(context, call):
            continue
        edit = replace_callee(module.source, call, f"{spelled}.{method}")
        yield change(
            CODE, call, "the Accelerator clips: right under fp16 and sharded gradients too", [edit], loop=training.index
        )


def _clips_prepared(context: Context, call: ast.Call) -> bool:
    return bool(call.args) and any(
        context.training.holds(context.module.variable(node))
        for node in ast.walk(call.args[0])
        if isinstance(node, ast.Name | ast.Attribute)
    )


RULE = Rule(
    code=CODE,
    name="gradient_clipping",
    summary="`clip_grad_norm_` becomes the Accelerator's",
    why="Under fp16 gradients must be unscaled first, and under FSDP or ZeRO each process holds only a part of them.",
    example_before="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    example_after="accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    find=find,
)
