"""Which backward passes belong together: those that train the same models or step the same optimizers."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.values.containers import kept_in
from accel_migrate.analysis.values.loops import Backward, CallGraph, variables_in
from accel_migrate.analysis.values.provenance import chain, is_root
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.steppers import wrapped_optimizer
from accel_migrate.flow.scopes import Function, Module, Variable


@dataclass(eq=False)
class Group:
    backwards: list[Backward]
    variables: dict[Variable, Role]


def find_groups(graph: CallGraph, backwards: list[Backward]) -> list[Group]:
    """Backward passes that share a model or an optimizer belong together."""
    groups: list[Group] = []
    for backward in backwards:
        used = _trained_variables(graph, backward)
        roots = {link for variable in used for link in chain(graph, variable)}
        joined = Group([backward], dict(used))
        rest = []
        for group in groups:
            theirs = {link for variable in group.variables for link in chain(graph, variable)}
            if roots & theirs:
                joined = Group(group.backwards + joined.backwards, {**group.variables, **joined.variables})
                roots |= theirs
            else:
                rest.append(group)
        groups = [*rest, joined]
    return groups


def entries(graph: CallGraph, group: Group) -> list[CallGraph]:
    """The calls as each script sees them, when several scripts build their own objects for one training function."""
    optimizers = [variable for variable, role in group.variables.items() if role & Role.OPTIMIZER]
    built = {link.scope for variable in optimizers for link in chain(graph, variable) if is_root(graph.roles, link)}
    if len(built) < 2 or any(scope.is_class for scope in built):
        return [graph]
    ordered = sorted(built, key=lambda scope: (str(scope.module.source.path), scope.module.position(scope.node)))
    return [graph.as_seen_from([other for other in ordered if other is not scope]) for scope in ordered]


def _trained_variables(graph: CallGraph, backward: Backward) -> dict[Variable, Role]:
    """Models and optimizers in the function of a backward pass, or in those that call it."""
    found: dict[Variable, Role] = {}
    functions: list[Function | None] = [backward.function]
    seen = set(functions)
    while functions:
        function = functions.pop(0)
        module = backward.module if function is None else graph.roles.project.module_of(function)
        node: ast.AST = function if function is not None else module.tree
        plain: set[Variable] = set()
        for variable, expression in variables_in(module, node):
            if variable in plain:
                continue
            role = graph.roles.of(variable) & (Role.MODEL | Role.OPTIMIZER)
            if role and _is_trained(graph.roles, module, variable, expression, function):
                found[variable] = role
            elif not role:
                kept = kept_in(graph.roles, variable)
                if kept is not None and kept.role & Role.OPTIMIZER:
                    if _is_used(module, expression):
                        found[variable] = Role.OPTIMIZER
                    continue
                plain.add(variable)
                inner = wrapped_optimizer(graph.roles, module, variable)
                if inner is not None:
                    found[inner] = Role.OPTIMIZER
        if any(role & Role.OPTIMIZER for role in found.values()):
            break
        if function is not None and function is backward.function:
            functions += [each for each in _steppers(graph, function) if each not in seen]
            seen.update(functions)
        for caller, call in graph.sites.get(function, ()) if function is not None else ():
            outer = caller.scope(call).function
            if outer not in seen:
                seen.add(outer)
                functions.append(outer)
    return found


def _steppers(graph: CallGraph, function: Function) -> list[Function]:
    """What a function calls that steps, and makes no gradients of its own: `if due: self.update()`."""
    found = []
    for callee in graph.callees.get(function, ()):
        called = {
            call.func.attr
            for call in graph.roles.project.module_of(callee).walk(callee, ast.Call)
            if isinstance(call.func, ast.Attribute)
        }
        if "step" in called and "backward" not in called:
            found.append(callee)
    return found


def _is_used(module: Module, container: ast.expr) -> bool:
    """Whether one of the things in a container is asked for: `optimizers["head"].step()`."""
    parent = module.parents.get(container)
    return isinstance(parent, ast.Subscript) and isinstance(module.parents.get(parent), ast.Attribute)


def _is_trained(
    roles: Roles, module: Module, variable: Variable, expression: ast.expr, function: Function | None
) -> bool:
    scope = module.scope(expression)
    if function is None and scope.function is not None:
        return False  # module level means module level
    owner = scope.owner_class
    if owner is not None and variable.scope is owner and roles.project.is_in_torch_module(module, expression):
        return False  # layers inside a model
    if roles.of(variable) & Role.OPTIMIZER:
        return True
    parent = module.parents.get(expression)
    if isinstance(parent, ast.Call):
        return parent.func is expression or expression in parent.args
    if isinstance(parent, ast.keyword):
        return True
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "parameters",
        "train",
        "zero_grad",
        "forward",
        "named_parameters",
    )
