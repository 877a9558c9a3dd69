"""Objects that keep what they are made of, and leave it as it is."""

from __future__ import annotations

import ast
from collections.abc import Collection

from accel_migrate.analysis.values.roles import Roles, arguments_of
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import MOVES, itself


def only_keeps(roles: Roles, module: Module, value: ast.expr, variables: Collection[Variable]) -> bool:
    """Whether a call makes an object of the project whose constructor stores these variables, and does no more with them."""
    target = roles.target(module, value) if isinstance(value, ast.Call) else None
    if target is None or not isinstance(target.node, ast.ClassDef) or target.node.bases:
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
