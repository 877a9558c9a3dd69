"""Where a value comes from: the one walk back, over names, callers, returned values and what is put into containers.

`held` is one step back from a name, `returned` from a call. `contents` goes on to all that a value may be, or keep;
`behind` to all that it is computed by, and `code_behind` to the functions and classes that make it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import all_arguments, is_call_of, parts_of_value, walk
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import GROWS

Place = tuple[Module, ast.expr]
Code = tuple[Module, ast.AST]  # an expression, a function or a class
MOST = 2000  # of what a value is computed by
_FARTHEST = 200  # of what it may be
_KEEPING = (ast.Dict, ast.Tuple, ast.List, ast.ListComp, ast.DictComp, ast.IfExp)


def held(graph: CallGraph, module: Module, node: ast.expr) -> Iterator[Place]:
    """What a name holds where it is read: bound to it, handed over for it, its default, put into it or changing it in place."""
    project = graph.roles.project
    variable = project.variable(module, node) if isinstance(node, ast.Name | ast.Attribute) else None
    if variable is None:
        return
    owner = variable.scope.module
    bindings = reaching(module, node) if owner is module else owner.bindings(variable)
    if variable.scope.is_class and not bindings:  # set by the body of the class, for all objects
        bindings = variable.scope.bindings.get(variable.name.removeprefix("self."), [])
    yield from graph.bound_to(variable, bindings)
    for binding in bindings:
        if isinstance(binding.statement, ast.AugAssign):
            yield owner, binding.statement.value
        elif binding.kind == "parameter" and (default := default_of(variable.scope.node, variable.name)) is not None:
            yield owner, default
    yield from put_into(variable)


def put_into(variable: Variable) -> Iterator[Place]:
    """`losses.append(loss)`, `losses["image"] = loss`, `noise.mul_(code)`: what was put into a value comes out of it."""
    owner = variable.scope.module
    for name, call in owner.method_calls.get(variable, ()):
        if name in GROWS or _is_in_place(name):
            yield owner, call
    yield from ((owner, value) for value in owner.items_set.get(variable, ()))


def _is_in_place(method: str) -> bool:
    return method.endswith("_") and not method.startswith("_")


def run_by(graph: CallGraph, module: Module, node: ast.AST) -> Definition | None:
    """The project's function that a call runs, or the forward of a module, also in `Cost()(a, b)`."""
    if not isinstance(node, ast.Call):
        return None
    target = graph.roles.target(module, node)
    if target is not None:
        return None if isinstance(target.node, ast.ClassDef) else target
    return graph.roles.forward_of(module, node.func)


def returned(graph: CallGraph, module: Module, node: ast.AST) -> list[Place]:
    """What a call gives, as far as that is code of the project."""
    target = run_by(graph, module, node)
    return [(target.module, value) for value in target.returned] if target is not None else []


def code_named(graph: CallGraph, module: Module, node: ast.AST) -> Iterator[Code]:
    """The function or class of the project that a call runs or makes, or that an expression names."""
    roles = graph.roles
    found = roles.target(module, node) if isinstance(node, ast.Call) else roles.project.definition(module, node)
    if found is not None:
        yield found.module, found.node


def code_behind(
    graph: CallGraph, first: Iterable[Code], values: Callable[..., Iterable[Code]] = held
) -> Iterator[Code]:
    """Some code with all that it is made by: functions and classes that it names, and the `values` of its names."""

    def steps(code: Code) -> Iterator[Code]:
        module, node = code
        for part in module.walk(node, ast.Call, ast.Name, ast.Attribute):
            yield from code_named(graph, module, part)
            yield from values(graph, module, part)

    return closure(first, steps, MOST)


def behind(graph: CallGraph, module: Module, node: ast.expr, ends: Role = Role.NONE) -> Iterator[Place]:
    """Every expression that a value is computed by, the nearest first; what has one of these roles is where that ends."""

    def steps(place: Place) -> Iterator[Place]:
        owner, value = place
        for part in walk(value):
            if isinstance(part, ast.expr):
                yield from held(graph, owner, part) if not graph.roles.of(owner.variable(part)) & ends else ()
                yield from returned(graph, owner, part)

    for owner, value in closure([(module, node)], steps, MOST):
        yield from ((owner, part) for part in walk(value) if isinstance(part, ast.expr))


def contents(graph: CallGraph, module: Module, node: ast.expr) -> Iterator[Place]:
    """Every expression that may be kept in what a node stands for: in containers, under names, by who hands it over."""

    def steps(place: Place) -> Iterator[Place]:
        owner, part = place
        inside = parts_of_value(part) if isinstance(part, _KEEPING) else []
        inside += all_arguments(part) if is_call_of(part, "dict") else []
        yield from ((owner, each) for each in inside)
        if (variable := owner.variable(part)) is not None:
            own = [b for b in owner.bindings(variable) if b.kind == "parameter" or (b.kind == "assign" and not b.path)]
            yield from graph.bound_to(variable, own)
            yield from ((owner, value) for value in owner.items_set.get(variable, ()))  # `state["model"] = model`

    return closure([(module, node)], steps, _FARTHEST)
