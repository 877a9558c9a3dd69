"""AM804: batch normalisation takes its statistics from the batch of each process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.made_of import made_of
from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.scopes import Module, Variable
from accel_migrate.edits import change
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
    if synced:
        return
    here = next((call for call in module.calls if _normalises(module, call)), None)
    if here is not None:
        yield change(CODE, here, _message(""), loop=training.index, safety=Safety.NOTE)
    elif training.place.module is module:
        elsewhere = _elsewhere(context)
        if elsewhere is not None:
            owner, call = elsewhere
            where = f" ({owner.source.path.name}:{call.lineno})"
            yield change(CODE, training.place.after, _message(where), loop=training.index, safety=Safety.NOTE)


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


def _elsewhere(context: Context) -> tuple[Module, ast.Call] | None:
    """A layer in the files that the models are written in, where those files are not otherwise touched."""
    training, roles, graph = context.training, context.script.roles, context.script.graph
    for built in training.prepared:
        for part in made_of(roles, graph, built.variable) if built.role is Role.MODEL else ():
            if part.module in training.modules:
                continue
            for node in part.module.walk(part.node):
                if isinstance(node, ast.Call) and _normalises(part.module, node):
                    return part.module, node
        for owner in _looked_up(context, built.variable) if built.role is Role.MODEL else ():
            layer = next((call for call in owner.calls if _normalises(owner, call)), None)
            if layer is not None:
                return owner, layer
    return None


def _looked_up(context: Context, model: Variable) -> Iterator[Module]:
    """The files in one of which a model is found by its name: `archs.__dict__[args.arch]()`, `getattr(archs, args.arch)()`."""
    roles, project = context.script.roles, context.script.project
    for link in chain(roles, context.script.graph, model):
        module = link.scope.module
        values = [binding.value for binding in module.bindings(link) if binding.value is not None]
        for node in (part for value in values for part in module.walk(value)):
            if isinstance(node, ast.Attribute) and node.attr == "__dict__":
                holder: ast.expr = node.value
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "vars") and node.args:
                holder = node.args[0]
            else:
                continue
            dotted = module.qualified(holder)
            found = project.imported_module(module, dotted) if dotted is not None else None
            if found is not None:
                path = found.source.path
                package = path.parent if path.name == "__init__.py" else None
                yield found
                yield from (other for other in project.modules if package in other.source.path.parents)


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
