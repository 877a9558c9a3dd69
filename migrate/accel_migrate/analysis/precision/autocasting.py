"""Autocast regions: where they are, and which precision each asks for."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accel_migrate.flow.nodes import opposite as turned_round
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Function, Module

_CUDA_ONLY = "torch.cuda.amp.autocast"
_ANY_DEVICE = ("torch.autocast", "torch.amp.autocast")
_NARROW = {
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.half": "fp16", "torch.float32": "no", "torch.float": "no",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Region:
    """One `autocast(...)` of the script. `whole` is what gives way to the Accelerator's: the call, or its `if` too."""

    module: Module
    call: ast.Call
    whole: ast.expr
    enabled: ast.expr | None  # None: always
    disabled: ast.expr | None  # the condition under which a nullcontext() stood in its place
    dtype: ast.expr | None
    device: ast.expr | None  # None: cuda, by name or because the class is torch.cuda.amp's

    @property
    def function(self) -> Function | None:
        return self.module.scope(self.call).function

    @property
    def asked(self) -> tuple[str, ...]:
        """The precision that it asks for, as far as its text tells."""
        parts = (self.enabled, self.disabled, self.dtype, self.device)
        return tuple(unparse(part) if part is not None else "" for part in parts)


def regions_in(project: Program, module: Module) -> list[Region]:
    """The regions of a file that are entered by `with`, at once or through a variable; not those inside models."""
    found = []
    for call in module.calls_of((_CUDA_ONLY, *_ANY_DEVICE)):
        parent = module.parents[call]
        whole, disabled = _whole(module, call)
        entered = isinstance(parent, ast.withitem) or isinstance(module.parents[whole], ast.Assign)
        if entered and not project.is_in_torch_module(module, call):
            found.append(_region(module, call, whole, disabled, module.qualified(call.func) == _CUDA_ONLY))
    return found


def _region(module: Module, call: ast.Call, whole: ast.expr, disabled: ast.expr | None, cuda_only: bool) -> Region:
    order = ("enabled", "dtype", "cache_enabled") if cuda_only else ("device_type", "dtype", "enabled", "cache_enabled")
    said: dict[str | None, ast.expr] = dict(zip(order, call.args))
    said |= {keyword.arg: keyword.value for keyword in call.keywords}
    device = said.get("device_type")
    if isinstance(device, ast.Constant) and device.value == "cuda":
        device = None
    enabled = said.get("enabled")
    if isinstance(enabled, ast.Constant) and enabled.value is True:
        enabled = None
    return Region(module, call, whole, enabled, disabled, said.get("dtype"), device)


def _whole(module: Module, call: ast.Call) -> tuple[ast.expr, ast.expr | None]:
    """`nullcontext() if test else autocast(...)`, either way round, with the test that leaves autocast out."""
    parent = module.parents[call]
    if isinstance(parent, ast.IfExp):
        other = parent.orelse if parent.body is call else parent.body
        if isinstance(other, ast.Call) and unparse(other.func).rpartition(".")[2] in ("nullcontext", "suppress"):
            return parent, opposite(parent.test) if parent.body is call else parent.test
    return call, None


def narrow(module: Module, dtype: ast.expr, depth: int = 0) -> ast.expr | None:
    """The name of the precision for an expression that gives a torch dtype; None if it cannot be told."""
    dotted = module.qualified(dtype)
    if dotted in _NARROW:
        return ast.Constant(_NARROW[dotted])
    if isinstance(dtype, ast.IfExp):
        body, orelse = narrow(module, dtype.body, depth), narrow(module, dtype.orelse, depth)
        return ast.IfExp(dtype.test, body, orelse) if body is not None and orelse is not None else None
    if isinstance(dtype, ast.Subscript) and isinstance(dtype.value, ast.Dict):
        values = [narrow(module, value, depth) for value in dtype.value.values]
        named = [value for value in values if value is not None]
        if len(named) == len(values):
            return ast.Subscript(ast.Dict(dtype.value.keys, named), dtype.slice, ast.Load())
    value = module.only_value(dtype)
    return narrow(module, value, depth + 1) if value is not None and depth < 4 else None


def opposite(test: ast.expr) -> ast.expr:
    """The condition turned round, as shortly as it can be said."""
    return folded(turned_round(test))


def folded(test: ast.expr) -> ast.expr:
    """`("cuda" if t else "cpu") != "cpu"` is `t`: a question to a choice between two texts that tells which it was."""
    if isinstance(test, ast.BoolOp):
        return ast.BoolOp(test.op, [folded(value) for value in test.values])
    choices = [node for node in walk(test) if isinstance(node, ast.IfExp)]
    innermost = [c for c in choices if not any(isinstance(n, ast.IfExp) for n in walk(c) if n is not c)]
    if len(innermost) != 1:
        return test
    choice = innermost[0]
    first, second = (_answer(test, choice, branch) for branch in (choice.body, choice.orelse))
    if first not in (True, False) or second is first or second not in (True, False):
        return test
    return choice.test if first else opposite(choice.test)


def _answer(node: ast.expr, choice: ast.IfExp, branch: ast.expr) -> object:
    """What an expression is when a choice inside it took this branch; None if that cannot be told."""
    if node is choice:
        return _answer(branch, choice, branch)
    match node:
        case ast.Constant():
            return node.value
        case ast.IfExp():
            asked = _answer(node.test, choice, branch)
            return None if asked is None else _answer(node.body if asked else node.orelse, choice, branch)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="device"), args=[name], keywords=[]):
            return _answer(name, choice, branch)
        case ast.Attribute(value=value, attr="type"):
            kind = _answer(value, choice, branch)
            return kind.partition(":")[0] if isinstance(kind, str) else None
        case ast.Call(func=ast.Attribute(value=value, attr="startswith"), args=[ast.Constant(value=str(prefix))]):
            text = _answer(value, choice, branch)
            return text.startswith(prefix) if isinstance(text, str) else None
        case ast.Compare(left=left, ops=[asks], comparators=[right]) if type(asks) in _ASKED:
            texts = _answer(left, choice, branch), _answer(right, choice, branch)
            known = isinstance(texts[0], str) and isinstance(texts[1], str)
            return _ASKED[type(asks)](*texts) if known else None
    return None


_ASKED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda part, text: part in text,
    ast.NotIn: lambda part, text: part not in text,
}
