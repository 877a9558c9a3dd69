"""What a dictionary of the project has under a key, wherever it is written and whoever hands it over."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.roles import Roles, given_by
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module

_DEPTH = 10
Entry = tuple[Module, ast.expr]


def entries(roles: Roles, module: Module, holder: ast.expr, key: object, depth: int = 0) -> list[Entry]:
    """All values that may be there; none where that cannot be known."""
    dotted = module.qualified(holder)
    variable = roles.project.imported_variable(module, dotted) if dotted is not None else module.variable(holder)
    if variable is None or depth > _DEPTH or _is_filled(roles, variable.name):
        return []
    home = variable.scope.module
    found: list[Entry] = []
    for binding in home.bindings(variable):
        here: list[Entry] = []
        if binding.kind == "parameter":
            for caller, _, handed in given_by(roles.sites, variable):
                there = entries(roles, caller, handed, key, depth + 1) if handed is not None else []
                if not there:
                    return []
                here += there
        elif isinstance(binding.value, ast.Dict) and not binding.path:
            pairs = zip(binding.value.keys, binding.value.values)
            here = [(home, value) for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
            here = [] if None in binding.value.keys else here
        if not here:
            return []
        found += here
    return [*found, *_stored(roles, key)] if found else []


def _stored(roles: Roles, key: object) -> list[Entry]:
    """What statements put under a key, into any dictionary."""
    return [
        (module, node.value)
        for module in roles.project.modules
        for node in module.walk(module.tree, ast.Assign)
        if isinstance(node.targets[0], ast.Subscript)
        and isinstance(node.targets[0].slice, ast.Constant)
        and node.targets[0].slice.value == key
    ]


def _is_filled(roles: Roles, name: str) -> bool:
    """Whether a dictionary of this name gets entries whose keys are not written there: `config.update(given)`."""
    last = name.rpartition(".")[2]
    for module in roles.project.modules:
        for call in module.calls:
            match call.func:
                case ast.Attribute(attr="update" | "setdefault" | "__setitem__", value=owner) if _ends(owner, last):
                    return True
        for node in module.walk(module.tree, ast.Assign, ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                if _ends(target.value, last):
                    return True
            if isinstance(node, ast.AugAssign) and _ends(target, last):
                return True
    return False


def _ends(node: ast.expr, name: str) -> bool:
    return unparse(node).rpartition(".")[2] == name
