"""Objects of the script's own that step an optimizer from within: `schedule = ScheduledOptim(optimizer, ...)`.

They are not optimizers and are not prepared; made of the prepared optimizer, they step it as they stepped the bare one.
So `prepare` comes before them.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import all_arguments
from accel_migrate.flow.scopes import Module, Variable


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
        made = roles.target(module, binding.value) if isinstance(binding.value, ast.Call) else None
        if made is not None and isinstance(made.node, ast.ClassDef):
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
