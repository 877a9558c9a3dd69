"""AM503: a copy of a prepared model is a copy of the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, replace_node
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM503"
_TAKES = {"copy.deepcopy", "copy.copy", "torch.jit.script", "torch.jit.trace", "torch.onnx.export", "pickle.dump"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for call in module.calls:
        if module.qualified(call.func) in _TAKES and call.args and training.timing.after_prepare(module, call):
            given = call.args[0]
            variable = module.variable(given) if isinstance(given, ast.Name | ast.Attribute) else None
            spelled = training.ready(module, call)
            if variable is None or not training.holds(variable) or spelled is None:
                continue
            if context.script.roles.of(variable) & Role.MODEL:
                edit = replace_node(module.source, given, f"{spelled}.unwrap_model({module.source.code(given)})")
                yield change(CODE, call, "takes the model itself, without its wrapper", [edit], loop=training.index)


RULE = Rule(
    code=CODE,
    name="model_copied",
    summary="copy and export the model itself",
    why="On several processes a prepared model is wrapped, and a wrapper cannot be copied or exported: it holds hooks and "
    "process groups.",
    example_before="best = copy.deepcopy(model)",
    example_after="best = copy.deepcopy(accelerator.unwrap_model(model))",
    find=find,
)
