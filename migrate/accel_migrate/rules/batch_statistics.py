"""AM804: batch normalisation takes its statistics from the batch of each process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.notes.of_models import OfModels
from accel_migrate.analysis.notes.unseen_layers import looked_up, unseen_layers
from accel_migrate.analysis.program.scopes import Module
from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM804"
_NORMALISED = re.compile(
    r"(wide_)?(resnet|resnext|densenet|mobilenet|googlenet|inception|mnasnet|shufflenet|efficientnet|regnet)|vgg\w+_bn$"
)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    synced = any(
        "SyncBatchNorm" in (m.qualified(c.func) or "") for m in context.script.project.modules for c in m.calls
    )
    if synced or _is_held(context):
        return
    own = OfModels(context.script, training)
    here = next((call for call in module.calls if _normalises(module, call) and own.may_hold(module, call)), None)
    if here is not None:
        yield change(CODE, here, _message(""), loop=training.index, safety=Safety.NOTE)
    elif training.place.module is module:
        elsewhere = _elsewhere(context, own)
        if elsewhere is not None:
            owner, call, chosen = elsewhere
            where = (
                f" ({owner.source.path.name}:{call.lineno}{', if the model that is chosen has it' if chosen else ''})"
            )
            yield change(CODE, training.place.after, _message(where), loop=training.index, safety=Safety.NOTE)
        else:
            yield from _not_visible(context)


def _not_visible(context: Context) -> Iterator[Change]:
    """One note where layers of the models are built by what nobody can look into."""
    training, script = context.training, context.script
    for built in training.prepared:
        unseen = unseen_layers(script.roles, script.graph, built.variable) if built.role is Role.MODEL else None
        if unseen is not None:
            owner, call = unseen
            where = f"line {call.lineno}" if owner is context.module else f"{owner.source.path.name}:{call.lineno}"
            message = (
                f"which layers `{unparse(call.func)}()` builds is not visible to the analysis ({where}): with batch "
                "normalisation each process normalises by its own batch"
            )
            yield change(CODE, training.place.after, message, loop=training.index, safety=Safety.NOTE)
            return


def _is_held(context: Context) -> bool:
    """Whether the script holds the statistics still: `if isinstance(layer, nn.BatchNorm2d): layer.eval()`, where that runs."""
    files = loaded_with(context.script.project, context.training.place.module)
    called = {
        c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "") for m in files for c in m.calls
    }
    for module in files:
        for node in module.walk(module.tree, ast.If):
            function = module.scope(node).function
            runs = function is None or function.name in called or function.name in ("__init__", "forward", "train")
            if isinstance(node, ast.If) and runs and "BatchNorm" in unparse(node.test):
                calls = [c.func for s in node.body for c in module.walk(s, ast.Call) if isinstance(c, ast.Call)]
                if any(isinstance(function, ast.Attribute) and function.attr == "eval" for function in calls):
                    return True
    return False


def _message(where: str) -> str:
    return (
        f"each process normalises by the statistics of its own batch{where}; for those of all processes convert the model with "
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm before prepare"
    )


def _normalises(module: Module, call: ast.Call) -> bool:
    owner, _, name = (module.qualified(call.func) or "").rpartition(".")
    if owner.startswith("torchvision.models"):
        return bool(_NORMALISED.match(name))
    return owner.startswith("torch.nn") and name.startswith("BatchNorm")


def _elsewhere(context: Context, own: OfModels) -> tuple[Module, ast.Call, bool] | None:
    """A layer in the files that the models are written in, where those files are not otherwise touched.

    The last is whether it is one of several models of a file, chosen by its name.
    """
    training, roles, graph = context.training, context.script.roles, context.script.graph
    for built in training.prepared:
        for part in made_of(roles, graph, built.variable) if built.role is Role.MODEL else ():
            if part.module in training.modules:
                continue
            for node in part.module.walk(part.node):
                if isinstance(node, ast.Call) and _normalises(part.module, node) and own.may_hold(part.module, node):
                    return part.module, node, False
        for owner in looked_up(roles, graph, built.variable) if built.role is Role.MODEL else ():
            layer = next((call for call in owner.calls if _normalises(owner, call)), None)
            if layer is not None:
                return owner, layer, True
    if not own.are_known:  # `{"small": Small(), "large": Large()}[name]`
        for node, owner in own.building.items():
            for call in owner.walk(node, ast.Call) if owner not in training.modules else ():
                if isinstance(call, ast.Call) and _normalises(owner, call):
                    return owner, call, True
    return None


RULE = Rule(
    code=CODE,
    name="batch_statistics",
    summary="batch normalisation on several processes",
    why="The batch of one process is as large as it was, so its statistics are as good as they were; those of all processes "
    "together would be better, at the price of an exchange in every layer.",
    example_before="self.bn = nn.BatchNorm2d(64)",
    example_after="self.bn = nn.BatchNorm2d(64)",
    find=find,
    safety=Safety.NOTE,
)
