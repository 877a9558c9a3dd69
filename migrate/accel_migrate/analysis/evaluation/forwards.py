"""The forward of an evaluation loop: which statement runs the model, and which names then hold one row per sample."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import is_zero, unparse, walk
from accel_migrate.flow.scopes import Module

# What may be done to an output without losing its first dimension, one row for each sample.
_KEEPS_ROWS = {
    "argmax", "softmax", "log_softmax", "sigmoid", "tanh", "round", "detach", "float", "double", "long", "int",
    "squeeze", "topk", "max", "clone", "exp", "log", "abs", "contiguous", "to", "bool", "gt", "ge", "relu", "clamp",
}  # fmt: skip
# Methods of a model that set it up and do not run it.
_SETS_UP = {
    "train", "eval", "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "zero_grad", "requires_grad_", "parameters",
    "named_parameters", "modules", "named_modules", "children", "buffers", "state_dict", "load_state_dict", "apply",
}  # fmt: skip
_NEEDS_DIMENSION = {"argmax", "max", "softmax", "log_softmax", "squeeze", "topk"}


@dataclass(frozen=True, eq=False)
class Forward:
    """The model runs in `statement`; after `after`, `names` hold rows, and `rest` is what comes then."""

    statement: ast.Assign
    after: ast.stmt
    names: tuple[str, ...]
    rest: list[ast.stmt]


def find_forward(roles: Roles, module: Module, loop: ast.For | ast.AsyncFor) -> Forward:
    """The forward of a loop; raises NotExact where its rows cannot be told."""
    return _Finder(roles, module, loop).forward()


class _Finder:
    def __init__(self, roles: Roles, module: Module, loop: ast.For | ast.AsyncFor) -> None:
        self.roles = roles
        self.module = module
        self.loop = loop

    def forward(self) -> Forward:
        statement, rest = self._split(self.loop.body)
        self._check_forward(statement)
        target = statement.targets[0]
        if isinstance(target, ast.Tuple):
            names = [item.id for item in target.elts if isinstance(item, ast.Name)]
            used = [name for name in names if reads(rest, name)]
            if len(names) != len(target.elts) or len(used) != 1:
                raise NotExact("the model returns several values", statement)
            return Forward(statement, statement, tuple(used), rest)
        if not isinstance(target, ast.Name):
            raise NotExact("the model's output is used without a name of its own", statement)
        if not reads(rest, target.id):
            raise NotExact("the model's output is not used by its name", statement)
        if not self._taken_apart(rest, target.id):
            return Forward(statement, statement, (target.id,), rest)
        return self._derived(statement, target.id, rest)

    def _derived(self, statement: ast.Assign, output: str, rest: list[ast.stmt]) -> Forward:
        """`outputs.logits`: what is returned is more than rows, so the rows are gathered once they have a name."""
        derived: list[str] = []
        after: ast.stmt = statement
        while rest and (name := self._derives_rows(rest[0], [output, *derived])):
            derived.append(name)
            after, rest = rest[0], rest[1:]
        used = [name for name in derived if reads(rest, name)]
        if not used or reads(rest, output):
            raise NotExact("the model returns several values", statement)
        return Forward(statement, after, tuple(used), rest)

    def _split(self, body: list[ast.stmt]) -> tuple[ast.Assign, list[ast.stmt]]:
        """The forward, and what comes after it in the same block or, when it stands in a `with`, after that."""
        for index, statement in enumerate(body):
            if isinstance(statement, ast.With) and self._calls_model(statement):
                forward, rest = self._split(statement.body)
                return forward, [*rest, *body[index + 1 :]]
            if self._calls_model(statement):
                if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                    raise NotExact("the model's output is used without a name of its own", statement)
                rest = body[index + 1 :]
                if any(self._calls_model(later) for later in rest):
                    one = (
                        len({unparse(call.func) for part in (statement, *rest) for call in self._model_calls(part)})
                        == 1
                    )
                    times = "the model is called more than once" if one else "several models are called"
                    raise NotExact(f"{times} in the loop", statement)
                return statement, rest
            if not isinstance(statement, ast.Assign | ast.Expr | ast.AugAssign | ast.AnnAssign | ast.If | ast.For):
                raise NotExact("the loop does more than evaluate", statement)
        raise NotExact("the model is not called in the loop itself", self.loop)

    def _check_forward(self, forward: ast.Assign) -> None:
        """`pred = model(x).argmax(1)` holds rows, `loss = criterion(model(x), y)` does not."""
        value = forward.value
        while not (isinstance(value, ast.Call) and self._is_model_call(value)):
            inner = _rows_of(self.module, value)
            if inner is None:
                raise NotExact("the model's output is used without a name of its own", forward)
            value = inner

    def _taken_apart(self, rest: list[ast.stmt], name: str) -> bool:
        """Whether an output is read by its parts: `outputs.logits`, `outputs[0]`, `outputs["out"]`."""
        for statement in rest:
            for node in walk(statement):
                if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                    parent = self.module.parents[node]
                    if isinstance(parent, ast.Subscript) and parent.value is node:
                        key = parent.slice
                        if isinstance(key, ast.Constant) and isinstance(key.value, str | int):
                            return True
                    if isinstance(parent, ast.Attribute):
                        called = isinstance(self.module.parents[parent], ast.Call) or parent.attr in (
                            "data",
                            "shape",
                            "T",
                        )
                        if not called:
                            return True
        return False

    def _derives_rows(self, statement: ast.stmt, sources: list[str]) -> str:
        """The name of `logits` in `logits = outputs.logits`, of `predictions = torch.argmax(logits, dim=-1)`; else empty."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return ""
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            return ""
        value: ast.expr | None = statement.value
        while value is not None:
            if isinstance(value, ast.Name):
                return target.id if value.id in sources else ""
            if isinstance(value, ast.Attribute) and "loss" in value.attr:
                return ""
            if isinstance(value, ast.Attribute | ast.Subscript) and isinstance(value.value, ast.Name):
                key = value.attr if isinstance(value, ast.Attribute) else unparse(value.slice)
                rows = isinstance(value, ast.Attribute) or key in ("'logits'", "'out'")
                return target.id if value.value.id == sources[0] and rows else ""
            value = _rows_of(self.module, value)
        return ""

    def _calls_model(self, statement: ast.stmt) -> bool:
        return bool(self._model_calls(statement))

    def _model_calls(self, statement: ast.stmt) -> list[ast.Call]:
        return [node for node in walk(statement) if isinstance(node, ast.Call) and self._is_model_call(node)]

    def _is_model_call(self, node: ast.Call) -> bool:
        if self.roles.role(self.module, node.func) & Role.MODEL:
            return True
        if not isinstance(node.func, ast.Attribute) or node.func.attr in _SETS_UP:
            return False
        return bool(self.roles.role(self.module, node.func.value) & Role.MODEL)


def _rows_of(module: Module, value: ast.expr) -> ast.expr | None:
    """The expression whose rows a value keeps: `x` of `x.argmax(1)`."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    method = value.func.attr
    if method not in _KEEPS_ROWS:
        return None
    imported = module.qualified(value.func) is not None
    arguments = value.args[1:] if imported else value.args
    dimensions = [*arguments, *[k.value for k in value.keywords if k.arg in ("dim", "axis")]]
    if method in _NEEDS_DIMENSION and (not dimensions or any(is_zero(d) for d in dimensions)):
        return None
    if imported:
        return value.args[0] if value.args else None
    return value.func.value


def reads(statements: list[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for statement in statements
        for node in walk(statement)
    )
