"""Evaluations that every process makes whole, of samples or in an order that each draws for itself: their figures differ.

A mean of batch means with a short last batch, or what `drop_last` leaves out, depends on the order. A seed is no promise: the
processes draw other numbers as soon as they train on other batches.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.evaluation.evaluation import Evaluation, Whole
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.scopes import Module

_SPLITS = {"random_split", "train_test_split", "ShuffleSplit"}


def in_own_order(roles: Roles, graph: CallGraph, evaluations: tuple[Evaluation, ...]) -> list[LoaderLoop]:
    """The loops over loaders that nothing shards, and that shuffle or hold a part of the data that was drawn."""
    whole = [e.loop for e in evaluations if isinstance(e, Whole) and not e.on_main and e.by_hand is None]
    made = {loop: _made_by(roles, graph, loop.module, loop.loader) for loop in whole}
    return [loop for loop in whole if any(_shuffles(c) or _is_split(roles, graph, m, c) for m, c in made[loop])]


def _made_by(roles: Roles, graph: CallGraph, module: Module, node: ast.expr) -> list[tuple[Module, ast.Call]]:
    """The calls that a variable, or those that it comes from, are set to."""
    variable = module.variable(node)
    links = chain(roles, graph, variable) if variable is not None else []
    values = [(link.scope.module, binding.value) for link in links for binding in link.scope.module.bindings(link)]
    return [(owner, value) for owner, value in values if isinstance(value, ast.Call)]


def _is_split(roles: Roles, graph: CallGraph, module: Module, loader: ast.Call) -> bool:
    """`DataLoader(held_out)` of a part that is drawn without a generator of its own."""
    return any(
        (owner.qualified(call.func) or "").rpartition(".")[2] in _SPLITS
        and not any(keyword.arg in ("generator", "random_state") for keyword in call.keywords)
        for data in loader.args[:1]
        for owner, call in _made_by(roles, graph, module, data)
    )


def _shuffles(call: ast.Call) -> bool:
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    shuffle = said.get("shuffle")
    return (
        shuffle is not None
        and "generator" not in said
        and not (isinstance(shuffle, ast.Constant) and not shuffle.value)
    )
