"""Loops that train in one phase and evaluate in another: `run_epoch(loader, optimizer=None)`, `for batch in loaders[phase]`.

The loader that is trained on is sharded. The others stay whole: what one loop sums up over them is a figure over all of
their data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.asked_to_train import told, trains_by
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import unparse
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


def evaluating_calls(graph: CallGraph, backwards: list[Backward], loops: list[LoaderLoop]) -> list[EvaluatingCall]:
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
            trains = trains_by(graph.roles, caller, call, own, tests)
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


def kept_whole(graph: CallGraph, calls: list[EvaluatingCall]) -> frozenset[Variable]:
    """The loaders of evaluating calls, under every name they have on the way."""
    return frozenset(link for call in calls for link in chain(graph, call.loader))


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


@dataclass(frozen=True)
class Entry:
    """`variable[key]` is trained on; the key as it is written in the file of the loop."""

    variable: Variable
    key: str


def is_entry(roles: Roles, module: Module, loader: ast.expr) -> bool:
    return isinstance(loader, ast.Subscript) and bool(roles.role(module, loader.value) & Role.LOADERS)


def is_chosen(roles: Roles, loop: LoaderLoop) -> bool:
    """Whether a training loop reads another loader in each phase: `dataloaders[phase]`."""
    chosen = isinstance(loop.loader, ast.Subscript) and not _is_fixed(roles, loop.module, loop.loader.slice)
    return loop.trains and chosen and is_entry(roles, loop.module, loop.loader)


def trained_entries(roles: Roles, backwards: list[Backward], loops: list[LoaderLoop]) -> Iterator[Entry]:
    """The entry that each training loop over a dictionary of loaders trains on, where that can be told."""
    for loop in loops:
        if not loop.trains or not is_entry(roles, loop.module, loop.loader):
            continue
        assert isinstance(loop.loader, ast.Subscript)
        variable = loop.module.variable(loop.loader.value)
        key = _key(roles, loop, loop.loader.slice, backwards)
        if variable is not None and key is not None and _is_fixed(roles, variable.scope.module, key):
            yield Entry(variable, loop.module.source.code(key))


def _is_fixed(roles: Roles, module: Module, key: ast.expr) -> bool:
    """A constant, or a member of a class: `Phase.TRAIN`."""
    if not isinstance(key, ast.Attribute):
        return isinstance(key, ast.Constant)
    owner = roles.project.definition(module, key.value)
    return owner is not None and isinstance(owner.node, ast.ClassDef)


def _key(roles: Roles, loop: LoaderLoop, index: ast.expr, backwards: list[Backward]) -> ast.expr | None:
    """The constant that the loop is indexed by, or that its index is compared with before the backward pass."""
    if _is_fixed(roles, loop.module, index):
        return index
    test = training_test(roles, loop, backwards)
    return test.comparators[0] if test is not None else None


def training_test(roles: Roles, loop: LoaderLoop, backwards: list[Backward]) -> ast.Compare | None:
    """`phase == "train"`, of a loop over `loaders[phase]` with its backward pass under that."""
    for test in (test for backward in backwards for test in conditions(loop, backward)):
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            if _is_fixed(roles, loop.module, test.comparators[0]) and isinstance(loop.loader, ast.Subscript):
                if unparse(test.left) == unparse(loop.loader.slice):
                    return test
    return None
