"""Objects of the script's own that are made of what is prepared.

Some step an optimizer from within: `schedule = ScheduledOptim(optimizer, ...)`. They are not optimizers and are not prepared;
made of the prepared optimizer, they step it as they stepped the bare one. So `prepare` comes before them. Others only keep
what they are made of.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import all_arguments, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import MOVES, itself


def wrapped_optimizer(roles: Roles, module: Module, variable: Variable) -> Variable | None:
    """The optimizer that such an object was made of; None for anything else."""
    if roles.of(variable):
        return None
    inner = _made_of(roles, module, variable)
    if inner is None or _steps_within(roles, module, variable):
        return inner
    methods = {
        call.func.attr
        for call in module.calls
        if isinstance(call.func, ast.Attribute) and module.variable(call.func.value) == variable
    }
    return inner if "zero_grad" in methods and any("step" in method for method in methods) else None


def _steps_within(roles: Roles, module: Module, variable: Variable) -> bool:
    """Whether a class of the project steps by itself, and makes no gradients: whoever has the object steps by its methods."""
    for binding in module.bindings(variable):
        made = roles.made(module, binding.value)
        if made is not None:
            calls = [call.func for call in made.module.walk(made.node, ast.Call)]
            called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
            if "step" in called and "backward" not in called:
                return True
    return False


def _made_of(roles: Roles, module: Module, variable: Variable) -> Variable | None:
    for binding in module.bindings(variable):
        if isinstance(binding.value, ast.Call):
            for argument in all_arguments(binding.value):
                inner = module.variable(argument)
                if inner is not None and roles.of(inner) & Role.OPTIMIZER:
                    return inner
    return None


def only_keeps(roles: Roles, module: Module, value: ast.expr, variables: Collection[Variable]) -> bool:
    """Whether a call makes an object of the project whose constructor stores these variables, and does no more with them."""
    target = roles.made(module, value)
    if target is None or target.node.bases:
        return False
    constructor = roles.project.method(target, "__init__")
    if constructor is None:
        return False
    assert isinstance(value, ast.Call)
    handed = {part: name for name, part in arguments_of(value, constructor) if module.variable(part) in variables}
    named = [n for n in walk(value) if isinstance(n, ast.Name | ast.Attribute) and module.variable(n) in variables]
    return all(node in handed for node in named) and _only_stores(constructor, set(handed.values()))


def _only_stores(constructor: Definition, handed: set[str]) -> bool:
    """`self.net = net`, whatever is set beside it: nothing reads that here, and nobody else is handed the object."""
    module = constructor.module
    own = constructor.scope.self_name
    kept: set[str] = set()
    stored = [node for node in module.walk(constructor.node, ast.Assign) if len(node.targets) == 1]
    holding = {itself(node.value, MOVES): node.targets[0] for node in stored}
    for node in module.walk(constructor.node, ast.Name):
        if node.id in handed:
            match holding.get(node):
                case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner == own:
                    kept.add(attr)
                case _:
                    return False
    for node in module.walk(constructor.node, ast.Name):
        if node.id == own:
            match module.parents[node]:
                case ast.Attribute(ctx=ast.Store()):
                    continue
                case ast.Attribute(attr=attr) as read if attr not in kept:
                    call = module.parents[read]
                    if not (isinstance(call, ast.Call) and call.func is read):
                        continue
            return False
    return True
