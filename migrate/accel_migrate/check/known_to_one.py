"""What only the main process works out, and a function gives to all: `report = None` on the others, which read `report[0]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.assignments import Assigned, Assignments
from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.evidence import Side, step_of
from accel_migrate.check.stores import returned
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import is_none, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module


def known_to_one(side: Side) -> Iterator[tuple[Module, ast.expr, str]]:
    """Where every process takes a part of what is None on all processes but one."""
    guards = side.once(Guards)
    given = set(_none_by_rank(side, guards))
    for file in side.files if given else ():
        for part in file.walk(file.tree, ast.Subscript, ast.Attribute, ast.BinOp):
            values = [part.left, part.right] if isinstance(part, ast.BinOp) else [part.value]
            named = [value for value in values if isinstance(value, ast.Name)]
            found = [one for name in named for one in side.once(Assignments).to(file, name)]
            if not any(_gives(side, one, given) for one in found):
                continue
            if guards.of(file, part) is None and side.runs(file, part) and not _is_asked(side, file, part):
                text = f"`{unparse(part)[:60]}` would fail on all processes but one, which have None there"
                yield file, part, text


def _none_by_rank(side: Side, guards: Guards) -> Iterator[Place]:
    """What a function sets to None on some processes only."""
    for file in side.files:
        for node in file.walk(file.tree, ast.Assign):
            inside = isinstance(file.scope(node).frame.node, Function)
            if inside and is_none(node.value) and guards.of(file, node) is not None:
                places = [side.flows.place(file, target) for target in node.targets if isinstance(target, ast.Name)]
                yield from (place for place in places if place is not None)


def _gives(side: Side, one: Assigned, given: set[Place]) -> bool:
    """Whether an assignment takes one of some values from the function that sets it."""
    for callee in side.flows.callees.get(one.value, ()) if isinstance(one.value, ast.Call) else ():
        home = side.flows.function_file[callee]
        for value in returned(callee):
            items = value.elts if one.item is not None and isinstance(value, ast.Tuple) else [value]
            item = items[one.item] if one.item is not None and one.item < len(items) else items[0]
            if isinstance(item, ast.Name) and side.flows.place(home, item) in given:
                return True
    return False


def _is_asked(side: Side, file: Module, part: ast.expr) -> bool:
    """Whether a part is taken only if a question to what it is a part of lets it be."""
    graph = side.graph(file.scope(part).frame)
    step = step_of(file, part, graph)
    named = {node.id for node in walk(part) if isinstance(node, ast.Name)}
    tests = [decision.test for decision in graph.control_dependences(step)] if step is not None else []
    return any(isinstance(n, ast.Name) and n.id in named for test in tests if test is not None for n in walk(test))
