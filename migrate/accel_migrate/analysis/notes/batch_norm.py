"""Layers of the prepared models that normalise by the batch, which on several processes is each one's own.

Silent where the script converts them or holds their statistics still, and where no code that builds the models names one.
What cannot be read of that code `unseen_layers` gives.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.notes.of_models import OfModels
from accel_migrate.analysis.notes.unseen_layers import looked_up
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import arguments_at, called_name, calls_method, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Module

_NORMALISED = re.compile(
    r"(wide_)?(resnet|resnext|densenet|mobilenet|googlenet|inception|mnasnet|shufflenet|efficientnet|regnet)|vgg\w+_bn$"
)


@dataclass(frozen=True, eq=False)
class Layer:
    """Where a layer is built or named; `chosen` where another may be taken in its place."""

    module: Module
    node: ast.AST
    chosen: bool = False


@once
def batch_norm(script: Script, training: Training) -> list[Layer]:
    """The first layer in each file of the training, or else one in the files that the models are written in."""
    own = OfModels(script, training)
    here = [layer for module in training.modules if (layer := _first(own, module, module.tree)) is not None]
    return here or list(_elsewhere(script, training, own))[:1]


def names_batch_norm(script: Script, training: Training) -> bool:
    """Whether any file of the training names such a layer, and nothing settles it."""
    return not is_settled(script, training) and any(_normalising(module) for module in script.loaded(training))


@once
def by_hand(script: Script, training: Training) -> tuple[Module, ast.AST] | None:
    """Where a layer of a prepared model takes from its rows their own mean over the batch: `(x - x.mean(0)) / x.std(0)`."""
    own = OfModels(script, training)
    for module in script.loaded(training):
        for node in module.walk(module.tree, ast.BinOp):
            function = module.scope(node).function
            if isinstance(node.op, ast.Sub) and function is not None and module.functions[function].instance:
                mean = module.only_value(node.right) or node.right
                if _is_mean_of(mean, unparse(node.left)) and own.may_hold(module, node):
                    return module, node
    return None


def _is_mean_of(node: ast.expr, rows: str) -> bool:
    """`x.mean(0)`, `x.mean(dim=(0, 2, 3), keepdim=True)`, `torch.mean(x, 0)`."""
    if not calls_method(node, "mean"):
        return False
    asked, place = (node.args[0], 1) if unparse(node.func.value) == "torch" and node.args else (node.func.value, 0)
    over = [part for each in arguments_at(node, place, "dim") for part in walk(each)]
    return unparse(asked) == rows and any(isinstance(part, ast.Constant) and part.value == 0 for part in over)


@once
def is_settled(script: Script, training: Training) -> bool:
    """Whether the script converts the layers, or holds their statistics still where that runs.

    The latter is `if isinstance(layer, nn.BatchNorm2d): layer.eval()`.
    """
    if any("SyncBatchNorm" in name for module in script.project.modules for name in module.imported_calls):
        return True
    files = script.loaded(training)
    called = {called_name(c) for m in files for c in m.calls}
    for module in files:
        for node in [each for each in module.walk(module.tree, ast.If) if "BatchNorm" in unparse(each.test)]:
            function = module.scope(node).function
            runs = function is None or function.name in called or function.name in ("__init__", "forward", "train")
            if runs:
                calls = [c.func for s in node.body for c in module.walk(s, ast.Call)]
                if any(isinstance(function, ast.Attribute) and function.attr == "eval" for function in calls):
                    return True
    return False


def _first(own: OfModels, module: Module, around: ast.AST) -> Layer | None:
    """A call that builds one, or else a name of one that is handed on: `norm_layer=nn.BatchNorm2d`."""
    named = [name for name in _normalising(module) if module.holds(around, name)]
    for node in module.walk(around, ast.Call) if named else ():
        if node.func in named and own.may_hold(module, node):
            return Layer(module, node)
    for name in named:
        if _is_handed_on(module, name) and own.may_hold(module, name):
            return Layer(module, name, chosen=True)
    return None


@once
def _normalising(module: Module) -> list[ast.Name | ast.Attribute]:
    """Where a file names such a layer."""
    return [name for name in module.walk(module.tree, ast.Name, ast.Attribute) if _normalises(module, name)]


def _normalises(module: Module, called: ast.AST) -> bool:
    dotted = module.qualified(called)
    if dotted is None:
        return False
    owner, _, name = dotted.rpartition(".")
    if owner.startswith("torchvision.models"):
        return bool(_NORMALISED.match(name))
    return owner.startswith("torch.nn") and name.startswith("BatchNorm")


def _is_handed_on(module: Module, node: ast.AST) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, ast.Call):
        return parent.func is not node and getattr(parent.func, "id", "") != "isinstance"
    return isinstance(parent, ast.arguments | ast.keyword | ast.Assign | ast.IfExp | ast.Dict | ast.Return)


def _elsewhere(script: Script, training: Training, own: OfModels) -> Iterator[Layer]:
    """A layer in the files that the models are written in, where the training does not touch those."""
    graph = script.graph
    models = [built.variable for built in training.prepared if built.role == Role.MODEL]
    for model in models:
        for part in made_of(graph, model):
            layer = _first(own, part.module, part.node) if part.module not in training.modules else None
            if layer is not None:
                yield layer
        for owner in looked_up(graph, model):
            yield from (Layer(owner, call, chosen=True) for call in owner.calls if _normalises(owner, call.func))
    if not own.are_known:  # `{"small": Small(), "large": Large()}[name]`
        for node, owner in own.building.items():
            for call in owner.walk(node, ast.Call) if owner not in training.modules else ():
                if _normalises(owner, call.func):
                    yield Layer(owner, call, chosen=True)
