"""Whether a training goes through a loader of which each process has a share."""

from __future__ import annotations

import ast

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import built_calls, options_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.scopes import Module, Variable


def trains_on_share(script: Script, training: Training) -> bool:
    """Whether a loader that is sharded is trained on, and not only evaluated."""
    prepared = any(built.role is Role.LOADER for built in training.prepared)
    return prepared and (any(loop.trains for loop in training.loops) or _reads_by_hand(script, training))


def takes_in_more(script: Script, training: Training) -> bool:
    """Whether a step takes in more than before: not where each process took in a batch already."""
    return not training.distribution.joins and trains_on_share(script, training)


def read_whole_before(script: Script, training: Training) -> tuple[Module, ast.Call] | None:
    """In a script that joined processes, the loader to train on that had no sampler: each process went through all of it."""
    if not training.distribution.joins:
        return None
    prepared = {built.variable for built in training.prepared if built.role is Role.LOADER}
    for loop in training.loops:
        variable = loop.module.variable(loop.loader) if loop.trains else None
        for link in chain(script.roles, script.graph, variable):
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
    built = built_calls(script.roles, script.graph, loader, Role.LOADER)
    return any(keyword.arg == "batch_sampler" for _, call in built for keyword in call.keywords)


def _reads_by_hand(script: Script, training: Training) -> bool:
    """Whether a loader is sharded that no evaluation reads: one whose batches `next` asks for."""
    roles, graph = script.roles, script.graph
    read = [e.loop.module.variable(e.loop.loader) for e in training.evaluations]
    evaluated = {link for variable in read if variable is not None for link in chain(roles, graph, variable)}
    return any(b.role is Role.LOADER and b.variable not in evaluated for b in training.prepared)
