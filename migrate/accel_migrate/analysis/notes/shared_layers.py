"""Layers that two models have in common, each of which is prepared: fsdp shards a weight for one model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.made_of import built_by, has_weights, made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.scopes import Module, Variable


class Shared(NamedTuple):
    module: Module
    node: ast.expr  # where the second model gets what the first one has
    models: tuple[str, str]


def shared_layers(script: Script, training: Training) -> Iterator[Shared]:
    """`Encoder(embedding)` beside `Decoder(embedding)`, `decoder.out.weight = encoder.embedding.weight`."""
    models = [built for built in training.prepared if built.role & Role.MODEL]
    named = {built.variable: built.text for built in models}
    given: dict[Variable, str] = {}
    for built in models if len(models) > 1 else ():
        values = [*built_by(script.graph, built.variable)]
        values += constructions(script.roles, built.variable, Role.MODEL)
        for module, value in dict.fromkeys(values):
            for name in module.walk(value, ast.Name, ast.Attribute):
                variable = module.variable(name)
                owner = _owner(module, name, named)
                if owner is not None and named[owner] != built.text and _is_layer(script, name, owner):
                    yield Shared(module, name, (named[owner], built.text))
                elif variable is not None and variable not in named and _is_one_model(script, module, variable):
                    first = given.setdefault(variable, built.text)
                    if first != built.text:
                        yield Shared(module, name, (first, built.text))
    for module in training.modules if len(models) > 1 else ():
        for node in module.walk(module.tree, ast.Assign):
            into, taken = _owner(module, node.targets[0], named), _owner(module, node.value, named)
            if into is not None and taken is not None and into != taken and _is_layer(script, node.value, taken):
                yield Shared(module, node.value, (named[taken], named[into]))


def _is_one_model(script: Script, module: Module, variable: Variable) -> bool:
    """Whether a name is that of one model wherever it is read; that of a parameter is of whatever is handed over."""
    return bool(script.roles.of(variable) & Role.MODEL) and not module.is_parameter(variable)


def _owner(module: Module, node: ast.expr, models: dict[Variable, str]) -> Variable | None:
    """The model that an expression names a part of."""
    while isinstance(node, ast.Attribute):
        node = node.value
        variable = module.variable(node)
        if variable in models:
            return variable
    return None


def _is_layer(script: Script, node: ast.expr, owner: Variable) -> bool:
    """Whether a part of a model is a weight, or a layer that has some."""
    if not isinstance(node, ast.Attribute) or node.attr in ("weight", "bias"):
        return isinstance(node, ast.Attribute)
    return any(
        isinstance(target, ast.Attribute) and target.attr == node.attr and _has_weights(script, made.module, value)
        for made in made_of(script.graph, owner)
        for set_to in made.module.walk(made.node, ast.Assign)
        for target, value in _pairs(set_to)
    )


def _pairs(assigned: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    target, value = assigned.targets[0], assigned.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts)
    else:
        yield target, value


def _has_weights(script: Script, module: Module, value: ast.expr) -> bool:
    variable = module.variable(value)
    is_model = variable is not None and bool(script.roles.of(variable) & Role.MODEL)
    return is_model or has_weights(script.roles, module, value)
