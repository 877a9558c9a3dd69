"""What a loop adds to: lists, or numbers and arrays of them, told by what they begin with."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.flow.nodes import called_name, parts_of_value, picked, unparse
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.torch_api import itself

_ARRAYS = {"zeros", "zeros_like", "tensor", "array"}


class Beginnings:
    def __init__(self, loop: LoaderLoop) -> None:
        self.module = loop.module
        self.loop = loop.statement

    def kind(self, target: ast.expr) -> type | None:
        """Whether a figure is a list, or a number or some numbers, told by what it begins with."""
        entry = isinstance(target, ast.Subscript)
        whole = target.value if isinstance(target, ast.Subscript) else target
        variable = self.module.variable(whole)
        if variable is None:
            return None
        found = reaching(self.module, whole)
        begun = [b for b in found if not self.module.holds(self.loop, b.statement)]
        if not begun or any(b.kind not in ("assign", "augment") or b.value is None for b in begun):
            return None
        kinds = {_kind_of(picked(b.value, b.path), entry) for b in begun if b.kind == "assign" and b.value is not None}
        return kinds.pop() if len(kinds) == 1 else None


def _kind_of(value: ast.expr, entry: bool) -> type | None:
    """`list` for an empty list, `float` for a number or an array; with `entry`, of what it holds."""
    value = itself(value)
    if isinstance(value, ast.Call):
        name = called_name(value)
        if name == "defaultdict" and entry and value.args:
            return {"int": float, "float": float, "list": list}.get(unparse(value.args[0]))
        if name == "list" and not value.args and not entry:
            return list
        return float if name in _ARRAYS else None
    if entry and isinstance(value, ast.Dict | ast.List | ast.ListComp):
        kinds = {_kind_of(one, False) for one in parts_of_value(value)}
        return kinds.pop() if len(kinds) == 1 else None
    if entry and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):  # `[0.0] * classes`
        return _kind_of(value.left, True)
    if isinstance(value, ast.List) and not value.elts:
        return list
    return float if isinstance(value, ast.Constant) and isinstance(value.value, int | float) else None


def is_list(value: ast.expr) -> bool:
    name = value.func if isinstance(value, ast.Call) else None
    last = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return isinstance(value, ast.List | ast.ListComp) or last in ("tolist", "list")
