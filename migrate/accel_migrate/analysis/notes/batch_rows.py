"""Of how many batches a step is, and whether each may be split over the processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import built_calls, options_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.sources import contents
from accel_migrate.flow.nodes import arguments_at
from accel_migrate.flow.scopes import Module, Variable


def can_be_split(script: Script, training: Training) -> bool:
    """Whether no batch that is trained on is known to have one row, or rows that a sampler decides on."""
    loaders = _trained_on(script, training)
    built = [each for loader in loaders for each in _built(script, loader)]
    return not any(chooses_sizes(script, loader) for loader in loaders) and not any(_is_of_one(*each) for each in built)


def _trained_on(script: Script, training: Training) -> list[Variable]:
    read = [loop.module.variable(loop.loader) for loop in training.loops if loop.trains]
    return [*(loader for loader in read if loader is not None), *read_by_hand(script, training)]


def _built(script: Script, loader: Variable) -> Iterator[tuple[Module, ast.Call]]:
    for module, call in built_calls(script.graph, loader, Role.LOADER):
        if module.full_name(call.func).endswith("data.DataLoader"):
            yield module, call


def _batch_size(call: ast.Call) -> ast.expr | None:
    """The size as a loader is given it; None where it may be among options that are handed on."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return next(iter(arguments_at(call, 1, "batch_size")), ast.Constant(1))


def _is_of_one(module: Module, call: ast.Call) -> bool:
    """Whether a loader yields single samples, or what its sampler decides on: `batch_size=None`."""
    size = _batch_size(call)
    values = module.held(size) if size is not None else [size]
    return bool(values) and all(isinstance(value, ast.Constant) and value.value in (None, 1) for value in values)


def batch_sizes(script: Script, training: Training) -> tuple[set[Variable], set[int]]:
    """The variables that a loader's batch size comes from, and the numbers where it is written as one."""
    variables: set[Variable] = set()
    numbers: set[int] = set()
    for module, call in (built for loader in _trained_on(script, training) for built in _built(script, loader)):
        size = _batch_size(call)
        if isinstance(size, ast.Constant) and type(size.value) is int:
            numbers.add(size.value)
        elif size is not None:
            variables |= _sources(script, module, size)
    return variables, numbers


def _sources(script: Script, module: Module, node: ast.expr) -> set[Variable]:
    """The variables that a value comes from as it is, in whatever file."""
    found = {script.project.variable(*each) for each in contents(script.graph, module, node)}
    return {each for each in found if each is not None}


def trains_on_share(script: Script, training: Training) -> bool:
    """Whether a loader that is sharded is trained on, and not only evaluated."""
    prepared = any(built.role == Role.LOADER for built in training.prepared)
    return prepared and (any(loop.trains for loop in training.loops) or bool(read_by_hand(script, training)))


def takes_in_more(script: Script, training: Training) -> bool:
    """Whether a step takes in more than before: not where each process took in a batch already."""
    return not training.distribution.joins and trains_on_share(script, training)


def read_whole_before(script: Script, training: Training) -> tuple[Module, ast.Call] | None:
    """In a script that joined processes, the loader to train on that had no sampler: each process went through all of it."""
    if not training.distribution.joins:
        return None
    prepared = {built.variable for built in training.prepared if built.role == Role.LOADER}
    for loop in training.loops:
        variable = loop.module.variable(loop.loader) if loop.trains else None
        for link in chain(script.graph, variable):
            module = link.scope.module
            for binding in module.bindings(link) if link in prepared else ():
                call = binding.value
                if isinstance(call, ast.Call) and module.full_name(call.func).endswith("data.DataLoader"):
                    said = options_of(module, call).keys()
                    if not said & {"sampler", "batch_sampler", None} and len(call.args) < 4:
                        return module, call
    return None


def chooses_sizes(script: Script, loader: Variable | None) -> bool:
    """Whether a loader is built with a batch sampler, which decides by itself how large its batches are."""
    built = built_calls(script.graph, loader, Role.LOADER)
    return any(keyword.arg == "batch_sampler" for _, call in built for keyword in call.keywords)


def read_by_hand(script: Script, training: Training) -> list[Variable]:
    """The loaders that are sharded and that no loop goes through: `next` asks for their batches."""
    graph = script.graph
    read = [loop.module.variable(loop.loader) for loop in training.loops]
    looped = {link for variable in read for link in chain(graph, variable)}
    return [b.variable for b in training.prepared if b.role == Role.LOADER and b.variable not in looped]
