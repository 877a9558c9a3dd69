"""Functions that train in one call and evaluate in another, in the same loop: `run_epoch(loader, optimizer=None)`.

The loader of an evaluating call stays whole: what such a loop sums up is a figure over all of its data.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Binding, Function, Module, Variable
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
            trains = _trains(roles, caller, call, own, tests)
            if trains is None:
                raise NotMigrated(
                    f"{function.name}() trains or evaluates by a condition that its calls do not show; "
                    "give evaluation a function of its own",
                    call.lineno,
                    caller,
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
            bindings[0].statement.lineno,
            module,
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
            tests.append(_told(loop.module, parent.test))
    return []


def _told(module: Module, test: ast.expr) -> ast.expr:
    """The condition itself, where a name stands for it: `trains = optimizer is not None`."""
    variable = module.variable(test) if isinstance(test, ast.Name) else None
    bindings = module.bindings(variable) if variable is not None else []
    if len(bindings) == 2:
        return _branched(module, bindings) or test
    value = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "assign" else None
    return value if value is not None and not bindings[0].path else test


def _branched(module: Module, bindings: list[Binding]) -> ast.expr | None:
    """The question that one flag answers: `if optimizer is None: trains = False`, `else: trains = True`."""
    asked, other = (module.parents[binding.statement] for binding in bindings)
    flags = [binding.value.value for binding in bindings if isinstance(binding.value, ast.Constant)]
    if not isinstance(asked, ast.If) or asked is not other or set(flags) != {True, False} or len(flags) != 2:
        return None
    sides = [binding.statement in asked.body for binding in bindings]
    if sides[0] == sides[1]:
        return None
    return asked.test if flags[sides.index(True)] else _negated(asked.test)


def _negated(test: ast.expr) -> ast.expr:
    """The opposite question, of what this module can answer: `x is None` of `x is not None`, `not x` of `x`."""
    turned = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in turned:
        return ast.Compare(test.left, [turned[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _trains(roles: Roles, caller: Module, call: ast.Call, own: Definition, tests: list[ast.expr]) -> bool | None:
    """Whether a call runs the backward pass, told by what it hands over for the names that are asked about."""
    assert not isinstance(own.node, ast.ClassDef)
    passed = dict(arguments_of(call, own))
    answers: list[bool] = []
    for test in tests:
        for node in walk(test):
            if isinstance(node, ast.Name) and node.id in _parameters(own.node):
                value = passed.get(node.id) or default_of(own.node, node.id)
                answer = _is_on(roles, caller, value)
                if answer is None:
                    return None
                answers.append(answer if not _is_negated(test, node) else not answer)
    return all(answers) if answers else None


def _is_on(roles: Roles, caller: Module, value: ast.expr | None) -> bool | None:
    if isinstance(value, ast.Constant):
        return value.value == "train" if isinstance(value.value, str) else bool(value.value)
    if value is not None and roles.role(caller, value) & (Role.OPTIMIZER | Role.SCALER):
        return True
    return None


def _is_negated(test: ast.expr, name: ast.Name) -> bool:
    """`not evaluate`, `optimizer is None`, `phase != "train"`; what is asked of a backward pass the other way round."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return True
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and test.left is name:
        other = test.comparators[0]
        nothing = isinstance(other, ast.Constant) and (other.value is None or other.value is False)
        equal = isinstance(test.ops[0], ast.Is | ast.Eq)
        return equal is nothing
    return False


def _parameters(function: Function) -> set[str]:
    return {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
