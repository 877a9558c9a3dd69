"""The loop's counter, where it stands for the number of batches so far: `total / (i + 1)`, in the loop or after it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.evaluation.results import is_set_above
from accel_migrate.flow.nodes import is_call_of, unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module
from accel_migrate.flow.sequence import follows

# What takes the place of an expression, around how many batches all processes have had.
Count = tuple[ast.expr, str]


class Counter:
    """`i` of `for i, batch in enumerate(loader)`; it counts the rounds of one process where batches are dealt out."""

    def __init__(self, module: Module, loop: ast.For | ast.AsyncFor) -> None:
        self.module = module
        self.loop = loop
        self.name = counter_of(module, loop)

    def counts(self, shown: Iterable[ast.AST]) -> list[Count]:
        """Its reads that stand for the batches so far; those that only show how far this process is are left out."""
        if self.name is None:
            return []
        divisors = [
            node.right for node in shown if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
        ]
        inside = [node for divisor in divisors for node in walk(divisor) if self._reads(node)]
        return [self._count(node) for node in dict.fromkeys([*inside, *self._after()])]

    def _after(self) -> list[ast.Name]:
        """Reads of its last value. Each comes after this loop whatever else runs."""
        following = [node for statement in _following(self.module, self.loop) for node in walk(statement)]
        inside = set(self.module.walk(self.loop))
        scope = self.module.scope(self.loop)
        found: list[ast.Name] = []
        for node in self.module.walk(scope.node if scope.is_function else self.module.tree):
            if not self._reads(node) or node in inside:
                continue
            variable = self.module.variable(node)
            if variable is None or variable.scope is not scope:
                continue
            bound = reaching(self.module, node)
            above = is_set_above(self.module, node, self.loop, bound)  # type: ignore[arg-type]
            if above or not any(binding.statement is self.loop for binding in bound):
                continue
            if any(follows(self.module, self.loop, b.statement) for b in bound) or node not in following:
                raise NotExact(f"`{self.name}` of the last batch is read after the loop", node)
            found.append(node)  # type: ignore[arg-type]
        return found

    def _reads(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name and isinstance(node.ctx, ast.Load)

    def _count(self, node: ast.AST) -> Count:
        """`i + 1` where it counts from 0, `i` where it counts from 1; else what `i` would be there."""
        assert isinstance(node, ast.Name)
        counting = _enumerate(self.module, self.loop)
        begins = None if counting is None else _begins(counting)
        around = self.module.parents[node]
        if begins == 0 and isinstance(around, ast.BinOp) and isinstance(around.op, ast.Add):
            if {unparse(around.left), unparse(around.right)} == {self.name, "1"}:
                return around, "{}"
        if begins == 1:
            return node, "{}"
        if begins == 0:
            return node, "({} - 1)"
        raise NotExact("the loop's counter takes part in it", node)


def counter_of(module: Module, loop: ast.For | ast.AsyncFor) -> str | None:
    """`i` of `for i, batch in enumerate(loader)`."""
    target = loop.target
    if (
        _enumerate(module, loop) is None
        or not isinstance(target, ast.Tuple)
        or not isinstance(target.elts[0], ast.Name)
    ):
        return None
    return target.elts[0].id


def wrapped(module: Module, loop: ast.For | ast.AsyncFor) -> list[Binding]:
    """What a name that the loop goes over may hold: a bar around its loader."""
    inner = loop.iter
    while isinstance(inner, ast.Call) and inner.args:
        inner = inner.args[0]
    variable = module.variable(inner) if isinstance(inner, ast.Name) else None
    return [] if variable is None else reaching(module, inner)


def _enumerate(module: Module, loop: ast.For | ast.AsyncFor) -> ast.Call | None:
    """The call that counts the batches, in the loop's own line or where its bar is made."""
    for around in (loop.iter, *[b.value for b in wrapped(module, loop) if b.value is not None]):
        for call in (node for node in walk(around) if isinstance(node, ast.Call)):
            if is_call_of(call, "enumerate"):
                return call
    return None


def _begins(call: ast.Call) -> int | None:
    """What the first batch is counted as."""
    said = [*call.args[1:], *[keyword.value for keyword in call.keywords if keyword.arg == "start"]]
    value = said[0].value if said and isinstance(said[0], ast.Constant) else None
    return 0 if not said else value if isinstance(value, int) else None


def _following(module: Module, loop: ast.stmt) -> list[ast.stmt]:
    """The statements that come after a loop in its block, and after a `with` that it ends."""
    block = module.block(loop)
    found = block[block.index(loop) + 1 :]
    around = module.parents[loop]
    return [*found, *_following(module, around)] if isinstance(around, ast.With) else found
