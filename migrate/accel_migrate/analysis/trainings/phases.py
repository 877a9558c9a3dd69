"""Functions that train in one call and evaluate in another, in the same loop: `run_epoch(loader, optimizer=None)`.

The loader of an evaluating call stays whole: what such a loop sums up is a figure over all of its data.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.values.asked_to_train import told, trains_by
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import itself


@dataclass(frozen=True, eq=False)
class EvaluatingCall:
    """A call of a training function that only evaluates, with the loader it hands over."""

    loop: LoaderLoop
    module: Module
    call: ast.Call
    loader: Variable


def evaluating_calls(
    roles: Roles, graph: CallGraph, backwards: list[Backward], loops: list[LoaderLoop]
) -> list[EvaluatingCall]:
    """The calls that run a training loop without its backward pass; NotMigrated where that cannot be told."""
    found: list[EvaluatingCall] = []
    for loop in loops:
        function, parameter = loop.function, loop.module.variable(loop.loader)
        tests = [test for b in backwards for test in conditions(loop, b)]
        if not loop.trains or not tests or parameter is None:
            continue
        _check_picked(loop.module, parameter)
        if function is None:
            continue
        own = Definition(loop.module, function)
        handed = [
            (caller, call, variable)
            for caller, call, argument in graph.given(Variable(own.scope, parameter.name))
            if argument is not None and (variable := caller.variable(argument)) is not None
        ]
        if len({variable for _, _, variable in handed}) < 2:
            continue
        for caller, call, variable in handed:
            trains = trains_by(roles, caller, call, own, tests)
            if trains is None:
                raise NotMigrated(
                    f"{function.name}() trains or evaluates by a condition that its calls do not show; "
                    "give evaluation a function of its own",
                    (caller, call),
                )
            if not trains:
                found.append(EvaluatingCall(loop, caller, call, variable))
    return found


def _check_picked(module: Module, loader: Variable) -> None:
    """NotMigrated where a loop that trains or evaluates goes through one of several loaders: `train if trains else test`."""
    bindings = [binding for binding in module.bindings(loader) if binding.kind == "assign" and not binding.path]
    values = [binding.value for binding in bindings if binding.value is not None]
    for value in values:
        values += [value.body, value.orelse] if isinstance(value, ast.IfExp) else []
    picked = {variable for value in values if (variable := module.variable(itself(value))) is not None}
    if len(picked - {loader}) > 1:
        raise NotMigrated(
            f"`{loader.name}` is one of several loaders, and one loop trains on it or evaluates it; give evaluation a function "
            "of its own",
            (module, bindings[0].statement),
        )


def kept_whole(roles: Roles, graph: CallGraph, calls: list[EvaluatingCall]) -> frozenset[Variable]:
    """The loaders of evaluating calls, under every name they have on the way."""
    return frozenset(link for call in calls for link in chain(roles, graph, call.loader))


def conditions(loop: LoaderLoop, backward: Backward) -> list[ast.expr]:
    """What is asked between the loop and its backward pass."""
    if backward.module is not loop.module or loop.function is not backward.function:
        return []
    tests: list[ast.expr] = []
    for parent in loop.module.ancestors(backward.call):
        if parent is loop.statement:
            return tests
        if isinstance(parent, ast.If):
            tests.append(told(loop.module, parent.test))
    return []
