"""Evaluations that every process makes whole, in an order that each draws for itself: their figures differ a little.

A mean of batch means with a short last batch, or what `drop_last` leaves out, depends on the order. A seed is no promise: the
processes draw other numbers as soon as they train on other batches.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.evaluation.evaluation import Evaluation, Whole
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Roles


def in_own_order(roles: Roles, graph: CallGraph, evaluations: tuple[Evaluation, ...]) -> list[LoaderLoop]:
    """The loops over loaders that shuffle and that nothing shards."""
    whole = [e.loop for e in evaluations if isinstance(e, Whole) and not e.on_main and e.by_hand is None]
    return [loop for loop in whole if any(_shuffles(call) for call in _made_by(roles, graph, loop))]


def _made_by(roles: Roles, graph: CallGraph, loop: LoaderLoop) -> list[ast.Call]:
    variable = loop.module.variable(loop.loader)
    links = chain(roles, graph, variable) if variable is not None else []
    values = [binding.value for link in links for binding in link.scope.module.bindings(link)]
    return [value for value in values if isinstance(value, ast.Call)]


def _shuffles(call: ast.Call) -> bool:
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    shuffle = said.get("shuffle")
    return (
        shuffle is not None
        and "generator" not in said
        and not (isinstance(shuffle, ast.Constant) and not shuffle.value)
    )
