"""Evaluations that every process makes whole, of samples or in an order that each draws for itself: their figures differ.

A mean of batch means with a short last batch, or what `drop_last` leaves out, depends on the order. A seed is no promise: the
processes draw other numbers as soon as they train on other batches. Our runtime seeds them alike: until then, they draw alike.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.evaluation.evaluation import Evaluation, Whole
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import called_name, is_falsy
from accel_migrate.flow.scopes import Module

_SPLITS = {"random_split", "train_test_split", "ShuffleSplit"}


def in_own_order(
    graph: CallGraph, flow: RankFlow, timing: Timing, evaluations: tuple[Evaluation, ...], launched: bool
) -> list[LoaderLoop]:
    """The loops over loaders that nothing shards, and that shuffle or hold a part of the data that each process draws."""
    apart = not launched or _seeds_apart(graph.roles, flow)
    whole = [e.loop for e in evaluations if isinstance(e, Whole) and not e.on_main and e.by_hand is None]
    made = {loop: _made_by(graph, loop.module, loop.loader) for loop in whole}
    return [
        loop
        for loop in whole
        if any(
            _shuffles(call) or any(apart or _is_late(graph, timing, *each) for each in _splits(graph, owner, call))
            for owner, call in made[loop]
        )
    ]


def draws_data(graph: CallGraph, module: Module, loader: ast.expr) -> bool:
    """Whether a loader holds a part of the data that each process draws."""
    return any(True for made in _made_by(graph, module, loader) for _ in _splits(graph, *made))


def _made_by(graph: CallGraph, module: Module, node: ast.expr) -> list[tuple[Module, ast.Call]]:
    """The calls that a variable, or those that it comes from, are set to; of a dictionary those of its entries."""
    links = chain(graph, module.variable(node))
    values = [(link.scope.module, binding.value) for link in links for binding in link.scope.module.bindings(link)]
    parts = [(m, part) for m, value in values for part in (value.values if isinstance(value, ast.Dict) else [value])]
    return [(owner, part) for owner, part in parts if isinstance(part, ast.Call)]


def _splits(graph: CallGraph, module: Module, loader: ast.Call) -> list[tuple[Module, ast.Call]]:
    """What draws the part of the data in `DataLoader(held_out)`, without a generator of its own."""
    return [
        (owner, call)
        for data in loader.args[:1]
        for owner, call in _made_by(graph, module, data)
        if owner.full_name(call.func).rpartition(".")[2] in _SPLITS
        and not any(keyword.arg in ("generator", "random_state") for keyword in call.keywords)
    ]


def _seeds_apart(roles: Roles, flow: RankFlow) -> bool:
    """Whether a seed goes by the rank."""
    return any(
        flow.depends(module, argument)
        for module, call in roles.project.calls
        if "seed" in called_name(call)
        for argument in call.args
    )


def _is_late(graph: CallGraph, timing: Timing, module: Module, call: ast.Call) -> bool:
    """Whether a call may run when the processes have trained: behind `prepare`, or in a loop around it."""
    place, function = timing.place, module.scope(call).function
    loops = [above for above in place.module.ancestors(place.after) if isinstance(above, ast.For | ast.While)]
    return timing.meets(module, call) or any(
        (module is place.module and module.holds(loop, call)) or function in graph.reached_from(loop, place.module)
        for loop in loops
    )


def _shuffles(call: ast.Call) -> bool:
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    shuffle = said.get("shuffle")
    return shuffle is not None and "generator" not in said and not is_falsy(shuffle)
