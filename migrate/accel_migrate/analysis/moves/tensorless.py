"""Modules of the project that hold no tensors, such as a loss of the script's own: to move them moves nothing."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import all_arguments, own_parameters
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module

_EMPTY = {
    "Dropout", "ELU", "GELU", "Identity", "LeakyReLU", "LogSigmoid", "LogSoftmax", "ReLU", "Sigmoid", "SiLU", "Softmax",
    "Softplus", "Tanh",
}  # fmt: skip
_REGISTERS = {"Parameter", "add_module", "register_buffer", "register_module", "register_parameter", "setattr"}


def holds_no_tensors(roles: Roles, module: Module, node: ast.expr) -> bool:
    """Whether an expression is surely a module without parameters and buffers, built of plain numbers."""
    variable = module.variable(node)
    built = node if variable is None else module.only_value(node)
    if not isinstance(built, ast.Call):
        return False
    if variable and any(other.name.startswith(f"{variable.name}.") for other in module.attribute_bindings):
        return False
    handed = all_arguments(built)
    target = roles.target(module, built)
    return target is not None and all(isinstance(each, ast.Constant) for each in handed) and _is_empty(roles, target)


def _is_empty(roles: Roles, target: Definition) -> bool:
    module, node = target.module, target.node
    if not isinstance(node, ast.ClassDef) or roles.project.base_names(target) != {"torch.nn.Module"}:
        return False
    if len(node.bases) != 1 or module.qualified(node.bases[0]) != "torch.nn.Module":
        return False  # what another class of the project sets is not looked at
    for part in module.walk(node):
        if (isinstance(part, ast.Name) and part.id in _REGISTERS) or (
            isinstance(part, ast.Attribute) and part.attr in _REGISTERS
        ):
            return False
    return all(
        part.value is not None and _is_plain(module, part.value)
        for part in module.walk(node, ast.Assign, ast.AnnAssign)
        if _sets_attribute(part)
    )


def _sets_attribute(statement: ast.Assign | ast.AnnAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(isinstance(node, ast.Attribute) for target in targets for node in ast.walk(target))


def _is_plain(module: Module, value: ast.expr) -> bool:
    """A number, what __init__ is handed, or a layer of torch without weights."""
    if isinstance(value, ast.Call):
        dotted = module.full_name(value.func)
        handed = all_arguments(value)
        return dotted.removeprefix("torch.nn.") in _EMPTY and all(_is_plain(module, each) for each in handed)
    if isinstance(value, ast.Name):
        function = module.scope(value).function
        return function is not None and function.name == "__init__" and value.id in _parameters(function)
    return isinstance(value, ast.Constant)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The parameters that are what the call hands over: those that no default fills with more than a number."""
    arguments = function.args
    if not all(isinstance(each, ast.Constant) for each in [*arguments.defaults, *arguments.kw_defaults] if each):
        return set()
    return {each.arg for each in own_parameters(function)}
