"""Statements that every process runs for each batch of all processes, in their order: what they do need not be known.

What such statements leave behind is the original's wherever they are the same code, with the same values, in the same order:
`best = max(best, hits)`, `scores = torch.cat((scores, out))`, counts that a condition on the batch decides.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.evaluation.quiet import Quiet, draws, root_of
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function

_CONTAINERS = {
    "append", "extend", "update", "add", "insert", "setdefault", "remove", "discard", "clear", "pop", "subtract",
}  # fmt: skip
_OF_TENSORS = {"shape", "data", "dtype", "device", "ndim", "T"}
_LAZY = {"zip", "map", "filter", "iter", "reversed", "enumerate"}
_NEVER = Role.MODEL | Role.OPTIMIZER | Role.LOADER | Role.SCHEDULER | Role.SCALER


@dataclass(frozen=True, eq=False)
class Replay:
    """`statements`, one below the other, run once for each batch of all processes, with that batch's `names`."""

    statements: tuple[ast.stmt, ...]
    names: tuple[str, ...]


class Replayed:
    """Judges statements of one loop; `assigned` are all names that the loop binds or adds to."""

    def __init__(
        self, roles: Roles, quiet: Quiet, loop: LoaderLoop, graphs: bool, moves: bool, shown: set[ast.AST]
    ) -> None:
        self.roles = roles
        self.quiet = quiet
        self.loop = loop
        self.module = loop.module
        self.graphs = graphs
        self.moves = moves  # whether the loader moves what it yields
        self.shown = shown
        self.self_name = loop.module.scope(loop.statement).self_name

    def replay(self, statements: list[ast.stmt], bound: set[str], counter: str | None, first: bool = False) -> Replay:
        """How statements are replayed that stand where `bound` are a round's own names; NotExact where that is not right.

        With `first` it is not known yet which others of the loop belong to them.
        """
        nodes = [node for statement in statements for node in walk(statement)]
        inside = set(nodes)
        for node in nodes:
            self._stays_inside(node, inside)
            if isinstance(node, ast.Call):
                self._call(node)
        read = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        taken = {node.id: node for node in reversed(read) if node.id in bound}
        if counter in taken:
            raise NotExact("the loop's counter takes part in it", taken[counter])
        if not taken:
            raise NotExact("the loop does more than add up its figures", statements[0])
        for node in read:
            if node.id in taken:
                self._can_be_sent(node)
        if not first:
            self._is_alone(inside, {*taken})
        return Replay(tuple(statements), tuple(dict.fromkeys(node.id for node in read if node.id in taken)))

    def belongs(self, statement: ast.stmt, replay: Replay, bound: set[str], shows: bool) -> bool:
        """Whether a statement has to do with what is replayed above it: it is replayed too, or sees the last batch only.

        One that only shows may do so, unless it shows what nothing else binds.
        """
        nodes = {node for one in replay.statements for node in walk(one)}
        if shows:
            concerned = {n.id for n in nodes if isinstance(n, ast.Name) and self._is_bound_here(n)} - bound
        else:
            concerned = self._changed(nodes) | {*replay.names}
        return not concerned.isdisjoint(self._named(set(walk(statement))))

    def _is_bound_here(self, name: ast.Name) -> bool:
        """Whether only the loop binds a name, which is there once it has run."""
        bindings = self.module.bindings_of(name)
        return bool(bindings) and all(self.module.holds(self.loop.statement, each.statement) for each in bindings)

    def _stays_inside(self, node: ast.AST, inside: set[ast.AST]) -> None:
        """Nothing that is replayed ends the round, or is there only once it has run."""
        kinds = (
            ast.Return | ast.Yield | ast.YieldFrom | ast.Await | ast.Global | ast.Nonlocal | ast.Delete | ast.NamedExpr
        )
        leaves = isinstance(node, ast.Break | ast.Continue) and self.module.innermost(node) not in inside
        if leaves or isinstance(node, kinds | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import):
            raise NotExact("a batch may be left out, or the loop may end early", node)

    def is_unmoved(self, node: ast.expr) -> bool:
        """Whether it is what the loader yields, which a prepared loader may put elsewhere: kept as it is, it would stay there."""
        held = reaching(self.module, node) if self.moves and isinstance(node, ast.Name) else []
        return any(binding.kind == "for" and binding.statement is self.loop.statement for binding in held)

    def _can_be_sent(self, node: ast.Name) -> None:
        """Tensors, numbers, and lists and dictionaries of them; not a generator, nor an object with parts of its own."""
        around = self.module.parents[node]
        part = isinstance(around, ast.Attribute) and around.attr not in _OF_TENSORS
        call = self.module.parents[around]
        if part and not (isinstance(call, ast.Call) and call.func is around):
            raise NotExact(f"`{unparse(around)}` is a part of an object, which is not sent to other processes", node)
        if isinstance(around, ast.Call) and called_name(around) in _CONTAINERS and self.is_unmoved(node):
            raise NotExact(f"`{node.id}` stays where its loader leaves it", node)
        for binding in reaching(self.module, node):
            value = binding.value
            lazy = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _LAZY
            if isinstance(value, ast.GeneratorExp | ast.Lambda) or (lazy and binding.kind != "for"):
                raise NotExact(f"`{node.id}` cannot be sent to other processes", node)
            if binding.kind == "for" and binding.statement is self.loop.statement:
                if self.graphs or isinstance(self.loop.statement.target, ast.Name):
                    raise NotExact(f"`{node.id}` is all of a batch, which is not sent to other processes", node)

    def _call(self, call: ast.Call) -> None:
        """Nothing is replayed that runs a model, draws, or may speak with other processes."""
        function = call.func
        receiver = function.value if isinstance(function, ast.Attribute) else function
        if (self.roles.role(self.module, function) | self.roles.role(self.module, receiver)) & _NEVER:
            raise NotExact("the model runs between what the loop adds up", call)
        if call in self.shown:
            return
        target = self.roles.target(self.module, call)
        if isinstance(function, ast.Attribute) and target is not None and not isinstance(target.node, ast.ClassDef):
            self._method(target, set())
            return
        if isinstance(function, ast.Attribute) and self._holds_values(function):
            return
        stored = (node for node in walk(self.loop.statement) if isinstance(node, ast.Name))
        self.quiet.call(self.module, call, {node.id for node in stored if isinstance(node.ctx, ast.Store)})

    def _holds_values(self, method: ast.Attribute) -> bool:
        """Whether a container of Python is added to, told by what it begins with."""
        whole = method.value
        while isinstance(whole, ast.Subscript):
            whole = whole.value
        variable = self.module.variable(whole)
        values = [binding.value for binding in self.module.bindings(variable)] if variable is not None else []
        made = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp
        return method.attr in _CONTAINERS and bool(values) and all(
            isinstance(value, made)
            or (isinstance(value, ast.Call) and called_name(value) in ("list", "dict", "set", "defaultdict", "Counter"))
            for value in values
        )  # fmt: skip

    def _method(self, target: Definition, seen: set[Function]) -> None:
        """A function of the project, which may keep what it is given; what it calls is asked too."""
        if target.node in seen or isinstance(target.node, ast.ClassDef):
            return
        seen.add(target.node)
        for call in (node for node in walk(target.node) if isinstance(node, ast.Call)):
            dotted = target.module.qualified(call.func) or ""
            runs = self.roles.role(target.module, call.func) & _NEVER
            if runs or draws(target.module, call) or dotted.startswith(("torch.distributed", "torch.save", "random.")):
                raise NotExact(f"`{unparse(call.func)}()` is not known to do the same on every process", call)
            inner = self.roles.target(target.module, call)
            if inner is not None:
                self._method(inner, seen)

    def _is_alone(self, inside: set[ast.AST], taken: set[str]) -> None:
        """Nothing else in the loop has to do with what is changed here, nor this with what the loop changes elsewhere."""
        others = set(walk(self.loop.statement)) - inside - self.shown
        changed = self._changed(inside)
        rebound = taken & {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for name in sorted((changed & self._named(others)) - rebound):
            raise NotExact(f"`{name}` goes on from batch to batch", self._first(inside, name))
        for name in sorted((self._changed(others) & self._named(inside)) - taken):
            raise NotExact(f"`{name}` goes on from batch to batch", self._first(inside, name))

    def _first(self, nodes: set[ast.AST], name: str) -> ast.AST:
        inside = (node for node in walk(self.loop.statement) if node in nodes and isinstance(node, ast.expr))
        return next(node for node in inside if self._key(node) == name)

    def _changed(self, nodes: set[ast.AST]) -> set[str]:
        """What is bound, stored into, or has a method called that is not one of a module."""
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                found.add(self._key(node))
            call = node.value if isinstance(node, ast.Expr) else node
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                if (call is not node or call.func.attr in _CONTAINERS) and self.module.qualified(call.func) is None:
                    found.add(self._key(call.func.value))
        return found - {""}

    def _named(self, nodes: set[ast.AST]) -> set[str]:
        return {self._key(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)} - {"", self.self_name}

    def _key(self, node: ast.expr) -> str:
        """The name that an expression is reached by, and of `self` the attribute."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
            inner = node.func if isinstance(node, ast.Call) else node.value
            if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name) and inner.id == self.self_name:
                return f"{inner.id}.{node.attr}"
            node = inner
        return root_of(node)
