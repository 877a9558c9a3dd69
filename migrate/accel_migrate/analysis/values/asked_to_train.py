"""Whether a call of a function with a backward pass runs it, by what it hands over: `step(batch, optimizer=None)`."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import opposite, own_parameters, walk
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Binding, Module


def told(module: Module, test: ast.expr) -> ast.expr:
    """The condition itself, where a name stands for it: `trains = optimizer is not None`."""
    bindings = module.bindings_of(test) if isinstance(test, ast.Name) else []
    if len(bindings) == 2:
        return _branched(module, bindings) or test
    return (bindings[0].assigned or test) if len(bindings) == 1 else test


def _branched(module: Module, bindings: list[Binding]) -> ast.expr | None:
    """The question that one flag answers: `if optimizer is None: trains = False`, `else: trains = True`."""
    asked, other = (module.parents[binding.statement] for binding in bindings)
    flags = [binding.value.value for binding in bindings if isinstance(binding.value, ast.Constant)]
    if not isinstance(asked, ast.If) or asked is not other or set(flags) != {True, False} or len(flags) != 2:
        return None
    sides = [binding.statement in asked.body for binding in bindings]
    if sides[0] == sides[1]:
        return None
    return asked.test if flags[sides.index(True)] else opposite(asked.test)


def trains_by(roles: Roles, caller: Module, call: ast.Call, own: Definition, tests: list[ast.expr]) -> bool | None:
    """Whether a call runs the backward pass, told by what it hands over for the names that are asked about."""
    assert not isinstance(own.node, ast.ClassDef)
    passed, names = dict(arguments_of(call, own)), {a.arg for a in own_parameters(own.node)}
    answers: list[bool] = []
    for test in tests:
        for node in walk(test):
            if isinstance(node, ast.Name) and node.id in names:
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
