"""Evaluations that a script shares out and adds up over processes by itself: they are right as they are, and stay.

The data comes through a DistributedSampler, and the sums go through torch.distributed in a function around the loop or
in a helper. The Accelerator joins the processes in torch's own default group, so all of it goes on working.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from accel_migrate.analysis.distribution.ranks import is_guarded
from accel_migrate.analysis.evaluation.evaluation import ByHand, Evaluation, Whole
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.scopes import Function, Module

_ADDS_UP = ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_object")


def with_shared_by_hand(graph: CallGraph, backwards: list[Backward], evaluations: list[Evaluation]) -> list[Evaluation]:
    return [_by_hand(graph, backwards, evaluation) or evaluation for evaluation in evaluations]


def _by_hand(graph: CallGraph, backwards: list[Backward], evaluation: Evaluation) -> Whole | None:
    loop = evaluation.loop
    if loop.function is None or any(_collectives(graph.roles, {loop.function})):
        return None  # sums in the function of the loop itself are understood one by one
    samplers = frozenset(_samplers(graph, loop))
    collectives = frozenset(_collectives(graph.roles, _around(graph, backwards, loop)))
    if not samplers or not collectives:
        return None
    found = [(m, call) for m, call in graph.roles.project.calls if call in collectives | samplers]
    owner, first = next((module, call) for module, call in found if call in collectives)
    if not any(_is_asked(module, call) for module, call in found):
        # On one process, where no group is started, they would fail. What all have alike is its own mean.
        return Whole(loop, "a function means its figures over the processes", first.lineno, owner)
    hand = ByHand(samplers, collectives)
    return Whole(loop, "the script shares it out by itself", first.lineno, owner, by_hand=hand)


def _is_asked(module: Module, call: ast.Call) -> bool:
    """Whether something is asked before a call is made, as whether there are several processes."""
    above = itertools.takewhile(lambda node: not isinstance(node, Function), module.ancestors(call))
    return is_guarded(module, call) or any(isinstance(node, ast.If | ast.IfExp | ast.BoolOp) for node in above)


def _around(graph: CallGraph, backwards: list[Backward], loop: LoaderLoop) -> set[Function]:
    """The functions that an evaluation calls, those it is written in, and what these call."""
    trains = {backward.function for backward in backwards}
    assert loop.function is not None
    found = set(graph.reached_from(loop.function, loop.module))
    for parent in loop.module.ancestors(loop.function):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            reached = graph.reached_from(parent, loop.module)
            if parent in trains or reached & trains:
                break
            found |= {parent, *reached}
    return found - {loop.function}


def _collectives(roles: Roles, functions: set[Function]) -> Iterator[ast.Call]:
    for function in functions:
        module = roles.project.module_of(function)
        for node in module.walk(function):
            if isinstance(node, ast.Call):
                owner, _, name = module.full_name(node.func).rpartition(".")
                if owner == "torch.distributed" and name in _ADDS_UP:
                    yield node


def _samplers(graph: CallGraph, loop: LoaderLoop) -> Iterator[ast.Call]:
    """The DistributedSamplers of the loaders that a loop may read."""
    for link in chain(graph, loop.module.variable(loop.loader)):
        module = link.scope.module
        for binding in module.bindings(link):
            if isinstance(binding.value, ast.Call):
                for keyword in binding.value.keywords:
                    if keyword.arg == "sampler":
                        yield from _made(module, keyword.value)


def _made(module: Module, sampler: ast.expr) -> Iterator[ast.Call]:
    variable = module.variable(sampler)
    values = [sampler, *[b.value for b in module.bindings(variable)]] if variable is not None else [sampler]
    for value in values:
        for node in module.walk(value) if value is not None else ():
            if isinstance(node, ast.Call):
                if module.full_name(node.func).rpartition(".")[2] == "DistributedSampler":
                    yield node
