"""Optimizers, schedulers and models that are kept together: `optimizers = [first, second]`, `{"body": ..., "head": ...}`.

A loop over them binds one name to each in turn. What is prepared are the elements, in the place where they are kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import called_name
from accel_migrate.flow.scopes import Binding, Module, Variable

KEPT = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER
_LOOPED = ("for", "comprehension")
_HANDS_OUT_ALL = ("values", "items")
_GROWS = ("append", "extend", "insert", "update", "setdefault", "pop", "remove", "clear", "popitem")


@dataclass(frozen=True, eq=False)
class Kept:
    """What a container holds: the key of each element as it is written, or None where only a list's `*name` is known."""

    role: Role
    keys: tuple[str, ...] | None
    elements: tuple[ast.expr, ...]
    is_tuple: bool = False


def is_looped(binding: Binding) -> bool:
    """Whether a loop or a comprehension gives a name its value."""
    return binding.kind in _LOOPED


def looped_from(roles: Roles, variable: Variable) -> list[Variable]:
    """What a loop takes an optimizer, a scheduler or a model from: the container, or the names it goes through."""
    if not roles.of(variable) & KEPT:
        return []
    module = variable.scope.module
    found: list[Variable] = []
    for binding in module.bindings(variable):
        if is_looped(binding) and binding.value is not None:
            found += _sources(module, binding.value, binding.path)
    return found


def _sources(module: Module, iterated: ast.expr, path: tuple[int, ...]) -> Iterator[Variable]:
    if isinstance(iterated, ast.Tuple | ast.List):
        for item in iterated.elts:
            part = item.elts[path[0]] if path and isinstance(item, ast.Tuple) and path[0] < len(item.elts) else item
            variable = module.variable(part)
            if variable is not None:
                yield variable
        return
    if isinstance(iterated, ast.Call):
        function = iterated.func
        name = called_name(iterated)
        if isinstance(function, ast.Attribute) and name in _HANDS_OUT_ALL and not iterated.args:
            yield from _sources(module, function.value, ())
        elif name in ("enumerate", "reversed", "list", "tuple", "iter") and iterated.args:
            yield from _sources(module, iterated.args[0], path[1:] if name == "enumerate" else path)
        elif name == "zip" and path and path[0] < len(iterated.args):
            yield from _sources(module, iterated.args[path[0]], path[1:])
        return
    variable = module.variable(iterated)
    if variable is not None:
        yield variable


def kept_in(roles: Roles, variable: Variable) -> Kept | None:
    """The optimizers, schedulers or models that a variable keeps together; None if it is no such container."""
    module = variable.scope.module
    bindings = module.bindings(variable)
    value = bindings[0].assigned if len(bindings) == 1 else None
    if value is None or roles.of(variable):
        return None
    if isinstance(value, ast.List | ast.Tuple) and value.elts:
        keys = tuple(str(index) for index in range(len(value.elts)))
        return _kept(roles, module, variable, keys, value.elts, isinstance(value, ast.Tuple))
    if isinstance(value, ast.Dict) and value.values:
        if all(isinstance(key, ast.Constant) for key in value.keys):
            texts = tuple(module.source.code(key) for key in value.keys if key is not None)
            return _kept(roles, module, variable, texts, value.values, False)
        return _kept(roles, module, variable, None, value.values, True)
    if isinstance(value, ast.ListComp | ast.DictComp):
        made = value.value if isinstance(value, ast.DictComp) else value.elt
        return _kept(roles, module, variable, None, [made], isinstance(value, ast.DictComp))
    if isinstance(value, ast.List | ast.Dict):
        added = [*_added(module, variable)]
        return _kept(roles, module, variable, None, added, isinstance(value, ast.Dict)) if added else None
    return None


def _kept(
    roles: Roles,
    module: Module,
    variable: Variable,
    keys: tuple[str, ...] | None,
    elements: list[ast.expr],
    is_tuple: bool,
) -> Kept | None:
    held = [roles.role(module, element) & KEPT for element in elements]
    if not held[0] or any(role != held[0] for role in held):
        return None
    grows = keys is not None and any(_added(module, variable))
    return Kept(held[0], None if grows else keys, tuple(elements), is_tuple)


def _added(module: Module, variable: Variable) -> Iterator[ast.expr]:
    """`optimizers.append(made)`, `optimizers["head"] = made`."""
    yield from (call.args[-1] for name, call in module.method_calls.get(variable, ()) if name in _GROWS and call.args)
    yield from module.items_set.get(variable, ())
