"""Where the Accelerator is made: before the first statement that uses it, and after what its arguments need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.devices import DeviceDefinition, Move, cpu_wish, guard_wish
from accel_migrate.analysis.homes import Place
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.reach import Reach
from accel_migrate.analysis.roles import Roles
from accel_migrate.analysis.scopes import Function, Module, Scope


@dataclass(frozen=True, eq=False)
class Start:
    """`accelerator = Accelerator(...)` goes before `statement`, or takes its place when that defines the device."""

    module: Module
    statement: ast.stmt
    block: list[ast.stmt]
    cpu: str | None  # the script's own wish for the CPU, as an expression
    at_prepare: bool  # right before prepare, after `statement`


def find_start(
    roles: Roles,
    graph: CallGraph,
    creation: Scope,
    place: Place,
    device: DeviceDefinition | None,
    dropped: list[Move],
    kept: list[Move],
    reach: Reach,
    precision: str | None,
) -> Start:
    module = creation.module
    handed = [call for function in reach.parameters for caller, call in graph.sites[function] if caller is module]
    early: list[ast.AST] = [*handed]
    early += [move.call for move in kept if move.device is None and move.module is module]
    early += [statement for _, statement in place.apart]
    if device is not None and device.scope is creation:
        anchor: ast.stmt = device.statement
        block = module.block(anchor)
        cpu = cpu_wish(module, device)
    elif place.module.scope(place.after) is creation or creation.is_class:
        anchor, block, cpu = place.after, place.block, guard_wish(creation, [*dropped, *kept])
    else:
        block, cpu = creation.node.body, guard_wish(creation, [*dropped, *kept])  # type: ignore[attr-defined]
        anchor = next(s for s in block if any(_holds(module, s, call) or s is call for call in handed))
        return Start(module, anchor, block, cpu, False)
    index = block.index(anchor)
    arguments = [ast.parse(text) for text in (cpu, precision) if text is not None]
    names = {node.id for argument in arguments for node in ast.walk(argument) if isinstance(node, ast.Name)}
    earliest = 0
    for position, statement in enumerate(block[: index + 1]):
        if (
            _binds(statement, names)
            or isinstance(statement, ast.Import | ast.ImportFrom)
            or _parses_arguments(statement)
        ):
            earliest = position + 1
    if not creation.is_class:
        for position in range(earliest, index):
            statement = block[position]
            if any(_is_print(module, call) for call in _own_calls(statement)) or any(
                module.scope(node) is creation and _holds(module, statement, node) for node in early
            ):
                return Start(module, statement, block, cpu, False)
    if device is not None and device.scope is creation:
        return Start(module, anchor, block, cpu, False)
    if creation.is_class:
        needed = [m for m in kept if m.module is module and _holds_any(module, block, m.call)]
        for move in needed:
            for statement in block:
                if _holds(module, statement, move.call):
                    return Start(module, statement, block, cpu, False)
    return Start(module, anchor, block, cpu, True)


def printing(
    roles: Roles, graph: CallGraph, reach: Reach, start: Start, modules: tuple[Module, ...], uses: list[ast.stmt]
) -> Iterator[tuple[Module, ast.Call]]:
    """Every `print` that runs after the Accelerator is made and has it in reach."""
    before = start.block[: start.block.index(start.statement)]
    early: set[Function] = set()
    for statement in before:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            early |= graph.reached_from(statement, roles, start.module)
    late: set[Function] = set()
    for statement in uses:
        late |= graph.reached_from(statement, roles, start.module)
    for module in modules:
        for call in module.calls:
            if not _is_print(module, call) or reach.spelled(module, call) is None:
                continue
            function = module.scope(call).function
            if reach.by_class is not None and function is not None and function.name == "__init__":
                continue
            handed = function in reach.parameters or module.scope(call).owner_class is reach.by_class is not None
            if function is not None and function is not reach.creation.node and not handed:
                if function not in late or function in early:
                    continue
            if function is reach.creation.node or (function is None and reach.creation.parent is None):
                if call.lineno < start.statement.lineno:
                    continue
            yield module, call


def device_is_needed(device: DeviceDefinition, gone: frozenset[ast.AST], reach: Reach, graph: CallGraph) -> bool:
    """Whether anything still reads the device's variable once moves and replaced parameters are gone."""
    module, variable = device.module, device.variable
    if "." in variable.name:
        return True
    passed: set[ast.AST] = set(module.walk(device.statement))
    for function, parameter in reach.parameters.items():
        if parameter.device is None:
            continue
        for caller, call in graph.sites.get(function, ()):
            for argument in (*call.args, *[keyword.value for keyword in call.keywords]):
                if caller is module and module.variable(argument) == variable:
                    passed.add(argument)
    return any(
        isinstance(node, ast.Name)
        and node.id == variable.name
        and isinstance(node.ctx, ast.Load)
        and node not in gone
        and node not in passed
        and module.variable(node) == variable
        for node in module.walk(module.tree)
    )


def _own_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Calls that run with the statement, not those of functions it defines."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            yield node
        pending += ast.iter_child_nodes(node)


def _is_print(module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Name) or call.func.id != "print":
        return False
    if any(keyword.arg == "file" for keyword in call.keywords):
        return False
    return module.resolve("print", module.scope(call)) is None and isinstance(module.parents[call], ast.Expr)


def _binds(statement: ast.stmt, names: set[str]) -> bool:
    return bool(names) and any(
        isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Store)
        for node in ast.walk(statement)
    )


def _parses_arguments(statement: ast.stmt) -> bool:
    """Before the arguments are parsed a wrong flag must end the script, not start processes."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("parse_args", "add_argument", "parse_known_args")
        for node in ast.walk(statement)
    ) and not isinstance(statement, ast.FunctionDef | ast.ClassDef)


def _holds(module: Module, statement: ast.stmt, node: ast.AST) -> bool:
    return node is statement or any(parent is statement for parent in module.ancestors(node))


def _holds_any(module: Module, block: list[ast.stmt], node: ast.AST) -> bool:
    return any(_holds(module, statement, node) for statement in block)
