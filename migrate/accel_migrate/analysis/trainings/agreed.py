"""Helpers that several scripts call: each hands over its own Accelerator, or none can."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accel_migrate.analysis.trainings.training import Training
from accel_migrate.analysis.values.imported import idle_in, loaded_with
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.idle import unit_of
from accel_migrate.flow.scopes import Function, Module


def agreed(trainings: Sequence[Training], graph: CallGraph) -> tuple[list[Training], list[tuple[Training, str]]]:
    """The trainings whose helpers get the Accelerator from every caller, and the others with the reason.

    Those that share a helper are left or migrated together, so they have one index.
    """
    files = {training: loaded_with(graph.roles.project, training.place.module) for training in trainings}
    kept, left = list(trainings), list[tuple[Training, str]]()
    while found := next(_disagreeing(kept, files, graph), None):
        left.append(found)
        kept.remove(found[0])
    return [_moving_for_others(training, kept, graph) for training in _numbered(kept)], left


def _moving_for_others(training: Training, trainings: list[Training], graph: CallGraph) -> Training:
    """A move that one training makes needless and another one runs and needs stays: it does no harm."""
    own = {move.call for move in training.dropped}
    needed: set[ast.Call] = set()
    for other in trainings:
        if shared := [move for move in other.kept if move.call in own]:
            running = [(other.place.module, other.place.after), *((b.module, b.call) for b in other.backwards)]
            idle = idle_in(graph.roles.project, other.place.module, running)
            needed |= {m.call for m in shared if unit_of(m.call, m.module.ancestors(m.call)) not in idle}
    dropped = tuple(move for move in training.dropped if move.call not in needed)
    return training if len(dropped) == len(training.dropped) else replace(training, dropped=dropped)


def _disagreeing(
    trainings: list[Training], files: dict[Training, list[Module]], graph: CallGraph
) -> Iterator[tuple[Training, str]]:
    for training in trainings:
        for function, parameter in training.reach.parameters.items():
            for module, call in graph.all_sites.get(function, ()):
                if module in files[training]:
                    continue
                others = [t for t in trainings if module in files[t] and function in t.reach.parameters]
                if not others:
                    yield training, _told(function, module, call, "which makes none")
                elif any(t.reach.parameters[function].replaced != parameter.replaced for t in others):
                    yield training, _told(function, module, call, "which would hand it over in another place")


def _told(function: Function, module: Module, call: ast.Call, why: str) -> str:
    where = f"{module.source.path.name} as well (line {call.lineno})"
    return f"{function.name}() needs the Accelerator and is called by {where}, {why}"


def _numbered(trainings: list[Training]) -> list[Training]:
    """Trainings that hand the Accelerator to one function have the number of the first of them."""
    numbers = {training.index: training.index for training in trainings}
    first: dict[Function, int] = {}
    for training in trainings:
        for function in training.reach.parameters:
            ours, theirs = numbers[training.index], numbers[first.setdefault(function, training.index)]
            if ours != theirs:
                numbers = {index: min(ours, theirs) if n in (ours, theirs) else n for index, n in numbers.items()}
    return [
        training if numbers[training.index] == training.index else replace(training, index=numbers[training.index])
        for training in trainings
    ]
