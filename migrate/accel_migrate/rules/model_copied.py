"""AM503: what copies, exports or logs a prepared model gets the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, note, replace_node
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.torch_api import itself
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM503"
# What makes something of the weights that is used elsewhere, and so needs all of them.
_EXPORTS = {
    *("torch.jit.script", "torch.jit.trace", "torch.onnx.export", "torch.export.export"),
    *("pickle.dump", "pickle.dumps", "dill.dump", "cloudpickle.dump", "joblib.dump"),
    *("mlflow.pytorch.log_model", "mlflow.pytorch.save_model"),
}
_TAKES = {*_EXPORTS, "copy.deepcopy", "copy.copy", "torchsummary.summary", "torchinfo.summary"}
_SHARDED = "; with sharded weights (FSDP, ZeRO-3) each process has a part of it alone, so export from a run without"
_SHARDED_HERE = (
    "; with sharded weights (FSDP, ZeRO-3) each process has a part of it alone: under --strategy fsdp hand over "
    "copy.deepcopy(model), which all processes must make together, and else export from a run without"
)
# TorchScript cannot compile a forward that casts.
_PRECISE = "; under mixed precision hand over accelerator.unwrap_model(model, keep_fp32_wrapper=False)"
# What may have the wrapper: it looks at the model, hangs hooks on it, or is taken over by another rule.
_MAY_WRAP = {
    "print",
    "pprint",
    "str",
    "repr",
    "len",
    "id",
    "type",
    "isinstance",
    "hasattr",
    "getattr",
    "setattr",
    "watch",
}
_MAY_WRAP |= {
    "info",
    "debug",
    "warning",
    "error",
    "log",
    "write",
    "append",
    "add",
    "update",
    "prepare",
    "super",
    "next",
    "iter",
}
_MAY_WRAP |= {
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "save",
    "DataParallel",
    "DistributedDataParallel",
}


def find(context: Context) -> Iterator[Change]:
    training, module, roles = context.training, context.module, context.script.roles
    for call in module.calls:
        if not training.timing.meets(module, call):
            continue
        takes = module.qualified(call.func) in _TAKES
        for part in [*(call.args[:1] if takes else call.args), *[keyword.value for keyword in call.keywords]]:
            given = itself(part)
            variable = module.variable(given) if isinstance(given, ast.Name | ast.Attribute) else None
            if not training.holds(variable):
                variable = roles.attribute(module, given)
            if variable is None or not training.holds(variable) or not roles.of(variable) & Role.MODEL:
                continue
            spelled = training.ready(module, call)
            exports = module.qualified(call.func) in _EXPORTS
            if not training.wraps_models:
                if exports:
                    compiled = module.qualified(call.func) == "torch.jit.script"
                    yield note(context, CODE, call, f"exports the model{_SHARDED_HERE}{_PRECISE if compiled else ''}")
            elif takes and spelled is not None:
                edit = replace_node(module.source, given, f"{spelled}.unwrap_model({module.source.code(given)})")
                sharded = _SHARDED if exports else ""
                message = f"takes the model itself, without its wrapper{sharded}"
                yield change(context, CODE, call, message, [edit])
            elif takes or _may_keep(context, call):
                message = (
                    f"{unparse(call.func)}() is outside of the files that were analysed, and gets the wrapper of "
                    f"`{unparse(given)}` on several processes; if it copies, saves or looks into the model, hand it "
                    "accelerator.unwrap_model(...)"
                )
                yield note(context, CODE, call, message)


def _may_keep(context: Context, call: ast.Call) -> bool:
    """Whether a call leaves the project with the model, for something that is not known to take a wrapper."""
    name = called_name(call)
    roles, module = context.script.roles, context.module
    if name in _MAY_WRAP or roles.target(module, call) is not None or roles.role(module, call.func) & Role.MODEL:
        return False
    return (module.qualified(call.func) or "").partition(".")[0] not in ("", "torch", "copy")


RULE = Rule(
    code=CODE,
    summary="for Accelerate: copy, export and log the model itself",
    why="Here `prepare` returns the model itself, which can be copied and exported as before; of sharded weights each process "
    "has a part alone, and a note says so where a model is exported. With `--target accelerate` it is wrapped on several "
    "processes, and a wrapper cannot be copied, exported or logged: it holds hooks and process groups. Where a function that "
    "cannot be looked into gets the model, a note says so.",
    example_before="best = copy.deepcopy(model)",
    example_after="best = copy.deepcopy(accelerator.unwrap_model(model))",
    find=find,
)
