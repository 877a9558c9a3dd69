"""Weights that a script reads back: where they may land, and whether the run itself wrote them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.processes.timing import Timing, is_built_anew
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import calls_method, keyword_value, unparse
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import itself


@dataclass(frozen=True, eq=False)
class Load:
    """A `torch.load`. `location` is its map_location, if it has one that must change or go."""

    module: Module
    call: ast.Call
    location: ast.expr | None
    feeds_state: bool  # what is read goes into load_state_dict, which copies it to the right device
    late: bool  # runs after prepare
    may_feed_state: bool  # some of what is read goes there, by other names or through a function

    @property
    def lands_on_cpu(self) -> bool:
        return self.feeds_state and not (self.location is not None and _names_cpu(self.location))


@dataclass(frozen=True, eq=False)
class StateLoaded:
    """`model.load_state_dict(...)` on a prepared model."""

    module: Module
    call: ast.Call
    owner: ast.expr


def loads_in(roles: Roles, timing: Timing, module: Module) -> Iterator[Load]:
    for call in module.calls_of(("torch.load",)):
        location = keyword_value(call, "map_location")
        if location is None and len(call.args) > 1:
            location = call.args[1]
        late = timing.after_prepare(module, call)
        yield Load(
            module, call, location, _feeds_state(module, call), late, _may_feed_state(roles, module, call, set())
        )


def states_loaded_in(roles: Roles, timing: Timing, module: Module, held: frozenset[Variable]) -> Iterator[StateLoaded]:
    for call in module.calls:
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "load_state_dict":
            variable = module.variable(itself(function.value))
            if variable in held and roles.of(variable) & Role.MODEL and timing.after_prepare(module, call):
                if not is_built_anew(roles, timing, module, itself(function.value)):
                    yield StateLoaded(module, call, function.value)


def _feeds_state(module: Module, call: ast.Call) -> bool:
    """Whether all that becomes of what is read is `load_state_dict(read)` or `read["part"]`."""
    parent = module.parents[call]
    if isinstance(parent, ast.Subscript):
        parent = module.parents[parent]
    if isinstance(parent, ast.Call):
        return calls_method(parent, "load_state_dict")
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0]
    read, scope = module.variable(name), module.scope(name)
    loaded = False
    for node in module.walk(scope.node, ast.Name):
        if isinstance(node.ctx, ast.Load) and module.variable(node) == read:
            around = module.parents[node]
            if isinstance(around, ast.Call) and node in around.args:
                if not calls_method(around, "load_state_dict"):
                    return False
                loaded = True
            elif isinstance(around, ast.Subscript) and around.value is node:
                outer = module.parents[around]
                if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute):
                    loaded |= outer.func.attr == "load_state_dict"
            elif not isinstance(around, ast.Compare | ast.Attribute):
                return False
    return loaded


def _may_feed_state(roles: Roles, module: Module, node: ast.expr, seen: set[Variable]) -> bool:
    """Whether something goes into a `load_state_dict`, whole or in part, under whatever names."""
    statement = module.statement(node)
    around = [parent for parent in module.ancestors(node) if module.holds(statement, parent)]
    names: list[Variable | None] = []
    for call in around:
        if isinstance(call, ast.Call) and call.func is not node and isinstance(call.func, ast.Attribute):
            if call.func.attr == "load_state_dict" and not module.holds(call.func, node):
                return True
            names += [module.variable(call.func.value)] if call.func.attr == "update" else []  # `own.update(read)`
        target = roles.target(module, call) if isinstance(call, ast.Call) else None
        if target is not None and isinstance(call, ast.Call) and not isinstance(target.node, ast.ClassDef):
            handed = [name for name, value in arguments_of(call, target) if module.holds(value, node)]
            names += [Variable(target.module.functions[target.node], name) for name in handed]
    if isinstance(statement, ast.Assign):
        names += [module.variable(target) for target in statement.targets]
    fresh = {variable for variable in names if variable is not None} - seen
    seen |= fresh
    return any(
        _may_feed_state(roles, owner, read, seen)
        for variable in fresh
        for owner in (variable.scope.module,)
        for read in owner.walk(variable.scope.node, ast.Name)
        if isinstance(read.ctx, ast.Load) and owner.variable(read) == variable
    )


def _names_cpu(location: ast.expr) -> bool:
    text = unparse(location)
    return text in ("'cpu'", "torch.device('cpu')") or (
        isinstance(location, ast.Lambda) and isinstance(location.body, ast.Name)
    )
