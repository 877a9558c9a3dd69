"""What a script asks before it chooses a device, on a machine that has a GPU."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module, Scope

GPUS = ("cuda", "mps", "xpu")
_AVAILABLE = ("is_available", "is_built", "device_count")
_DEPTH = 4
_OPPOSITE = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class WithAGpu:
    """The conditions of a file, without the question whether there is a GPU: there is one."""

    def __init__(self, file: Module) -> None:
        self.file = file

    def condition(self, test: ast.expr) -> bool | ast.expr:
        """What is left of a condition."""
        return self._condition(test, _DEPTH)

    @cached_property
    def _assigned(self) -> dict[tuple[Scope | None, str], list[ast.expr | None]]:
        found: dict[tuple[Scope | None, str], list[ast.expr | None]] = {}
        for node in self.file.walk(self.file.tree, ast.Name):
            if isinstance(node.ctx, ast.Store):
                parent = self.file.parents[node]
                value = parent.value if isinstance(parent, ast.Assign) else None
                found.setdefault((self.file.binder(node.id, self.file.scope(node)), node.id), []).append(value)
        return found

    def _condition(self, test: ast.expr, depth: int) -> bool | ast.expr:
        """A condition without the question whether there is a GPU: on a machine with one."""
        asked = asked_of(test) if depth else None
        made = self.value(asked.name) if asked is not None else None
        if asked is not None and made is not None:
            choice = made.args[0] if isinstance(made, ast.Call) and len(made.args) == 1 else made
            if isinstance(choice, ast.IfExp) and is_choice(choice):  # the same choice once more
                taken = self._condition(choice.test, depth - 1)
                return taken if (device_named(choice.body) == "cpu") != asked.for_gpu else opposite(taken)
        match test:
            case ast.Constant():
                return bool(test.value)
            case ast.Call() if unparse(test.func).endswith(_AVAILABLE):
                return True
            case ast.Call(func=ast.Name(id="bool"), args=[inner]):
                return self._condition(inner, depth)
            case ast.Attribute(attr="is_available"):
                return True
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if "device_count" in unparse(test):
                return False
            case ast.Compare() if any(word in unparse(test) for word in _AVAILABLE):
                return True
            case ast.UnaryOp(op=ast.Not()):
                return opposite(self._condition(test.operand, depth))
            case ast.BoolOp():
                return _joined(test.op, [self._condition(value, depth) for value in test.values])
            case ast.IfExp():
                chosen = self._condition(test.test, depth)
                if isinstance(chosen, bool):
                    return self._condition(test.body if chosen else test.orelse, depth)
            case ast.Name() if depth:
                value = self.value(test)
                if value is not None and "is_available" in unparse(value):
                    return self._condition(value, depth - 1)
        return test

    def value(self, name: ast.Name) -> ast.expr | None:
        """What a name is set to, where that happens once."""
        values = self._assigned.get((self.file.binder(name.id, self.file.scope(name)), name.id), [])
        return values[0] if len(values) == 1 else None


class Asked(NamedTuple):
    name: ast.Name  # of what was chosen
    for_gpu: bool  # whether it is a GPU; else, whether it is the CPU


def asked_of(test: ast.expr) -> Asked | None:
    """`"cuda" in device`, `device.startswith("cuda")`, `device.type != "cpu"`: a question to a device chosen above."""
    match test:
        case ast.Compare(left=ast.Constant(value="cuda"), ops=[ast.In()], comparators=[ast.Name() as name]):
            return Asked(name, True)
        case ast.Call(
            func=ast.Attribute(value=ast.Name() as name, attr="startswith"), args=[ast.Constant(value="cuda")]
        ):
            return Asked(name, True)
        case ast.Compare(
            left=ast.Name() | ast.Attribute(value=ast.Name(), attr="type") as left,
            ops=[ast.Eq() | ast.NotEq() as operator],
            comparators=[ast.Constant(value="cuda" | "cpu" as kind)],
        ):
            chosen = left.value if isinstance(left, ast.Attribute) else left
            assert isinstance(chosen, ast.Name)
            return Asked(chosen, isinstance(operator, ast.Eq) == (kind == "cuda"))
    return None


def is_choice(node: ast.IfExp) -> bool:
    kinds = [device_named(node.body), device_named(node.orelse)]
    return "cpu" in kinds and any(kind in GPUS for kind in kinds)


def device_named(node: ast.expr) -> str:
    """The kind of device that an expression names; empty for any other."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and unparse(node.func) in ("torch.device", "device"):
        node = node.args[0]
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]  # f"cuda:{number}"
    return node.value.split(":")[0] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def opposite(test: bool | ast.expr) -> bool | ast.expr:
    if isinstance(test, bool):
        return not test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _joined(operator: ast.boolop, parts: list[bool | ast.expr]) -> bool | ast.expr:
    """`and` or `or` of what is left when the known parts are taken out."""
    decides = isinstance(operator, ast.Or)
    if any(part is decides for part in parts):
        return decides
    asked = [part for part in parts if not isinstance(part, bool)]
    if len(asked) > 1:
        return ast.BoolOp(operator, asked)
    return asked[0] if asked else not decides
