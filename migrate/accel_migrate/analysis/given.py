"""A device that comes from outside, as an option or a parameter: it is set anew once the Accelerator is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.devices import DeviceDefinition, Move
from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.overriding import is_overridden
from accel_migrate.analysis.reach import NAME, Reach
from accel_migrate.analysis.roles import Roles
from accel_migrate.analysis.scopes import Module, Scope, Variable


@dataclass(frozen=True, eq=False)
class GivenDevice:
    """`args.device` or a parameter `device`, as the scope that makes the Accelerator writes it."""

    variable: Variable
    reads: tuple[ast.expr, ...]  # what still reads it after migration, in any file

    def rebound(self) -> tuple[str, ...]:
        """`args.device = accelerator.device`, where the script goes on reading it."""
        return (f"{self.variable.name} = {NAME}.device",) if self.reads else ()


def find_given(
    roles: Roles,
    graph: CallGraph,
    creation: Scope,
    moves: list[Move],
    modules: tuple[Module, ...],
    gone: frozenset[ast.AST],
    reach: Reach,
) -> GivenDevice | None:
    """The device that this training's moves name and nothing in sight decides on."""
    for move in moves:
        variable = move.module.variable(move.device) if move.device is not None else None
        for link in chain(roles, graph, variable) if variable is not None else ():
            if (
                link.scope is creation
                and link.name.endswith("device")
                and (_comes_from_outside(link) or is_overridden(roles, graph, link))
            ):
                replaced = set(_replaced(graph, reach))
                reads = [
                    (m, n)
                    for m in modules
                    for n in _reads(roles, graph, m, link)
                    if n not in gone and n not in replaced
                ]
                if any(is_asked_as_text(m, n) for m, n in reads):
                    return None
                return GivenDevice(link, tuple(node for _, node in reads))
    return None


def _comes_from_outside(variable: Variable) -> bool:
    if variable.scope.is_class:
        return False
    bindings = variable.scope.module.bindings(variable)
    if "." in variable.name:
        return not bindings
    return bool(bindings) and all(binding.kind == "parameter" for binding in bindings)


def texts_of(
    roles: Roles, graph: CallGraph, definition: DeviceDefinition, modules: tuple[Module, ...], gone: frozenset[ast.AST]
) -> tuple[tuple[Module, ast.expr], ...]:
    """Where a script that keeps its device by name asks for that name: there it is the device's type."""
    if not definition.is_text:
        return ()
    own = {n for s in (definition.statement, *definition.later) for n in definition.module.walk(s)}
    return tuple(
        (module, node)
        for module in modules
        for node in _reads(roles, graph, module, definition.variable)
        if node not in gone and node not in own and is_asked_as_text(module, node)
    )


def is_asked_as_text(module: Module, read: ast.expr) -> bool:
    """`args.device == "cpu"`, `device.startswith(...)`: asked as a text, which the Accelerator's device is not."""
    return isinstance(module.parents[read], ast.Compare | ast.Attribute | ast.Subscript | ast.BinOp)


def _replaced(graph: CallGraph, reach: Reach) -> Iterator[ast.expr]:
    """Arguments in whose place the Accelerator is handed over."""
    for function, parameter in reach.parameters.items():
        if parameter.device is not None:
            for _, call in graph.sites.get(function, ()):
                yield from call.args
                yield from (keyword.value for keyword in call.keywords)


def _reads(roles: Roles, graph: CallGraph, module: Module, given: Variable) -> Iterator[ast.expr]:
    last = given.name.rpartition(".")[2]
    for node in module.walk(module.tree):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name == last and isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            variable = module.variable(node)
            if variable is not None and given in chain(roles, graph, variable):
                yield node
