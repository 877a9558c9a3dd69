"""Names that a script makes by its clock or by chance: below its Accelerator all processes have those of the main one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accel_migrate.analysis.placement.starts import Start
from accel_migrate.analysis.processes.own_names import own_part
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.own_values import OWN
from accel_migrate.flow.sequence import comes_first

BROADCAST = "broadcast_object_list"
_TEXTS = ("format", "join", "strftime", "isoformat", "str", "Path", "replace", "joinpath")


class OwnName(NamedTuple):
    """A name, as the scope that makes the Accelerator writes it, and the call by which it differs."""

    name: str
    told: ast.Call
    below: ast.stmt | None  # what binds it, if that stands below the Accelerator


def agreed_names(graph: CallGraph, start: Start) -> Iterator[OwnName]:
    """Above the Accelerator each that is read below it; below it those that the clock itself is asked for."""
    module = start.module
    scope = module.scope(start.statement)
    around = [start.statement, *module.ancestors(start.statement)]
    seen: set[str] = set()
    for statement in module.walk(scope.node, ast.Assign):
        variable = module.variable(statement.targets[0]) if len(statement.targets) == 1 else None
        if variable is None or variable.scope is not scope or variable.name in seen or not _is_text(statement.value):
            continue
        above = comes_first(module, statement, start.statement) or (start.at_prepare and statement is start.statement)
        if module.parents[statement] not in around or not (above or start.covers(statement)):
            continue
        own = own_part(graph, module, statement.value)
        if own is None or OWN.get(own[0].qualified(own[1].func) or "", "").startswith("a temporary"):
            continue
        if _is_read_below(start, statement.targets[0]) if above else module.holds(statement, own[1]):
            seen.add(variable.name)
            yield OwnName(variable.name, own[1], None if above else statement)


def broadcast(own: tuple[OwnName, ...]) -> tuple[str, ...]:
    """The statement that hands the names of the main process to all."""
    names = [each.name for each in own]
    listed = ", ".join(names)
    return (f"{listed} = {BROADCAST}([{listed}])" + ("[0]" if len(names) == 1 else ""),) if names else ()


def _is_text(value: ast.expr) -> bool:
    """Whether a value is put together as a text or a path, as names of files and folders are; not a time."""
    match value:
        case ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Add() | ast.Mod() | ast.Div(), left=left, right=right):
            return any(_is_text(side) or _is_word(side) for side in (left, right))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in _TEXTS
    return False


def _is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_read_below(start: Start, target: ast.expr) -> bool:
    module = start.module
    variable, scope = module.variable(target), module.scope(start.statement)
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and module.variable(node) == variable
        and (start.covers(node) or module.scope(node).frame is not scope.frame)
        for node in module.walk(module.tree, ast.Name, ast.Attribute)
    )
