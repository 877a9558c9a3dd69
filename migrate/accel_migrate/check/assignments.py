"""Every assignment of a program, by what it sets: a variable, a field of an object, an entry of a mapping."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accel_migrate.check.evidence import Side, is_accelerator
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module


class Assigned(NamedTuple):
    """`target` is set to `value`, or to one of its items, by `node`."""

    file: Module
    node: ast.stmt
    target: ast.expr
    value: ast.expr
    item: int | None = None  # of what a call gives back


class Assignments:
    """Looked up by the last name of what is set, then by whether it may be the same place."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._of: dict[object, list[Assigned]] = {}
        for file in side.files:
            for node in file.walk(file.tree, ast.Assign, ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for part, value, item in _parts(target, node.value) if node.value is not None else ():
                        self._of.setdefault(_last(part), []).append(Assigned(file, node, part, value, item))

    def to(self, file: Module, place: ast.expr) -> list[Assigned]:
        """All that may set what an expression names."""
        return [one for one in self._of.get(_last(place), ()) if self.may_be_same(one.file, one.target, file, place)]

    def may_be_same(self, at: Module, target: ast.expr, file: Module, place: ast.expr) -> bool:
        """Whether two expressions are one variable, or the same field of what may be one object."""
        flows = self._side.flows
        match target, place:
            case ast.Attribute(attr=one), ast.Attribute(attr=other):
                ours = {made.node for made in flows.made(at, target.value, "instance")}
                theirs = {made.node for made in flows.made(file, place.value, "instance")}
                alike = not ours or not theirs or any(flows.are_related(a, b) for a in ours for b in theirs)
                return one == other and alike and not is_accelerator(target.value)
            case ast.Subscript(value=one), ast.Subscript(value=other):
                return _last(target) == _last(place) is not None and self.may_be_same(at, one, file, other)
            case ((ast.Name() | ast.Attribute()), (ast.Name() | ast.Attribute())):
                return flows.place(at, target) == flows.place(file, place)
        return False


def _parts(
    target: ast.expr, value: ast.expr, item: int | None = None
) -> Iterator[tuple[ast.expr, ast.expr, int | None]]:
    """Each target with its value, also of `a, b = b, a`; of what is unpacked, with the number of its item."""
    if isinstance(target, ast.Tuple | ast.List):
        written = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for index, part in enumerate(target.elts):
            if written:
                yield from _parts(part, value.elts[index])  # type: ignore[attr-defined]
            else:
                yield from _parts(part, value, index)
    else:
        yield target, value, item


def _last(place: ast.expr) -> object:
    match place:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=key)):
            return key
        case ast.Subscript(slice=ast.Attribute() as member):  # of an enumeration
            return unparse(member)
    return None
