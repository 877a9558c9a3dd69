"""The calls that build what a variable holds, looked up inside the project's own functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable

# Loaders of graphs yield objects of their own kind and cut their data by themselves.
_FOREIGN = ("dgl.", "torch_geometric.")


def constructions(roles: Roles, variable: Variable, role: Role) -> Iterator[tuple[Module, ast.Call]]:
    module = variable.scope.module
    for binding in module.bindings(variable):
        if isinstance(binding.value, ast.Call):
            target = roles.target(module, binding.value)
            if target is None or isinstance(target.node, ast.ClassDef):
                if not binding.path:
                    yield module, binding.value
                continue
            for node in ast.walk(target.node):
                if isinstance(node, ast.Call) and roles.role(target.module, node) & role:
                    inner = roles.target(target.module, node)
                    if inner is None or isinstance(inner.node, ast.ClassDef):
                        yield target.module, node


def is_foreign_loader(roles: Roles, graph: CallGraph, loader: Variable) -> bool:
    """Whether a loader, under whatever name, comes from a library whose batches and sampling are its own."""
    names = chain(roles, graph, loader)
    for name in names:
        for module, call in constructions(roles, name, Role.LOADER):
            if (module.qualified(call.func) or "").startswith(_FOREIGN):
                return True
        module = name.scope.module
        for binding in module.bindings(name):  # `loader = dataset`
            other = module.variable(binding.value) if isinstance(binding.value, ast.Name) else None
            if other is not None and other not in names:
                names += [link for link in chain(roles, graph, other) if link not in names]
    return False
