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
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import called_name, own_parameters, unparse, walk
from accel_migrate.flow.program import FunctionDefinition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function, Module

_CONTAINERS = {
    "append", "extend", "update", "add", "insert", "setdefault", "remove", "discard", "clear", "pop", "subtract",
}  # fmt: skip
_OF_TENSORS = {"shape", "data", "dtype", "device", "ndim", "T"}
_MAKES = {"list", "dict", "set", "defaultdict", "Counter", "zeros", "ones", "zeros_like", "bincount", "array", "tensor"}
_LAZY = {"zip", "map", "filter", "iter", "reversed", "enumerate"}
_NEVER = Role.MODEL | Role.OPTIMIZER | Role.LOADER | Role.SCHEDULER | Role.SCALER


@dataclass(frozen=True, eq=False)
class Replay:
    """`statements`, one below the other, run once for each batch of all processes, with that batch's `names`."""

    statements: tuple[ast.stmt, ...]
    names: tuple[str, ...]
    leaves: frozenset[type[ast.stmt]] = frozenset()  # how the round may end in it: `break`, `continue` or `return`


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
        self.given_away: set[ast.expr] = set()  # what a function of the project changes
        self.self_name = loop.module.scope(loop.statement).self_name

    def replay(self, statements: list[ast.stmt], bound: set[str], counter: str | None, first: bool = False) -> Replay:
        """How statements are replayed that stand where `bound` are a round's own names; NotExact where that is not right.

        With `first` it is not known yet which others of the loop belong to them.
        """
        nodes = [node for statement in statements for node in walk(statement)]
        inside = set(nodes)
        leaves = frozenset(type(node) for node in nodes if self._leaves(node, inside))
        for node in nodes:
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
        return Replay(tuple(statements), tuple(dict.fromkeys(node.id for node in read if node.id in taken)), leaves)  # type: ignore[arg-type]

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

    def _leaves(self, node: ast.AST, inside: set[ast.AST]) -> bool:
        """Whether a statement ends the round, or the loop. Nothing that is replayed is there only once it has run."""
        kinds = ast.Yield | ast.YieldFrom | ast.Await | ast.Global | ast.Nonlocal | ast.Delete | ast.NamedExpr
        if isinstance(node, kinds | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import):
            raise NotExact("the loop does more than add up its figures", node)
        return isinstance(node, ast.Return) or (
            isinstance(node, ast.Break | ast.Continue) and self.module.innermost(node) not in inside
        )

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
        target = self.roles.function(self.module, call)
        if target is not None:
            self.given_away |= {*self._handed_over(call, target, set())}
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
            or (isinstance(value, ast.Call) and called_name(value) in _MAKES)
            for value in values
        )  # fmt: skip

    def _changed_by(self, target: FunctionDefinition, seen: set[Function]) -> set[str]:
        """The parameters whose objects a function of the project may change, and that it hands to what it calls.

        NotExact where it changes what it was not handed.
        """
        given = {parameter.arg for parameter in own_parameters(target.node)}
        if target.node in seen:
            return given
        seen.add(target.node)
        held: dict[str, set[str]] = {}  # what each name of its own may be a part of
        for node in walk(target.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in given:
                made = target.module.parents[node]
                held.setdefault(node.id, set()).update(() if _is_new(made) else given)
        changed: set[str] = set()
        for node in walk(target.node):
            touched: list[ast.expr] = []
            if isinstance(node, ast.Global | ast.Nonlocal):
                raise NotExact(f"`{target.node.name}()` is not known to leave nothing behind", node)
            if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                touched = [node]
            elif isinstance(node, ast.AugAssign):
                touched = [node.target]
            elif isinstance(node, ast.Call):
                touched = self._touched_by(target.module, node, seen)
            for name in map(root_of, touched):
                if name not in {*given, *held}:
                    raise NotExact(f"`{target.node.name}()` is not known to leave nothing behind", node)
                changed |= held.get(name, {name})
        return changed

    def _touched_by(self, module: Module, call: ast.Call, seen: set[Function]) -> list[ast.expr]:
        """What a call in a function of the project may change."""
        dotted = module.qualified(call.func) or ""
        runs = self.roles.role(module, call.func) & _NEVER
        if runs or draws(module, call) or dotted.startswith(("torch.distributed", "torch.save", "random.")):
            raise NotExact(f"`{unparse(call.func)}()` is not known to do the same on every process", call)
        inner = self.roles.function(module, call)
        if inner is not None:
            return self._handed_over(call, inner, seen)
        if isinstance(call.func, ast.Attribute) and not dotted:
            return [call.func.value] if call.func.attr in _CONTAINERS or call.func.attr.endswith("_") else []
        return []

    def _handed_over(self, call: ast.Call, target: FunctionDefinition, seen: set[Function]) -> list[ast.expr]:
        """What a call of a function of the project hands it to change."""
        changed = self._changed_by(target, seen)
        unpacked = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if changed and unpacked:
            raise NotExact(f"`{unparse(call.func)}()` is not known to leave nothing behind", call)
        handed = dict(arguments_of(call, target))
        receiver = [call.func.value] if isinstance(call.func, ast.Attribute) and changed - {*handed} else []
        return [*receiver, *[value for name, value in handed.items() if name in changed]]

    def _is_alone(self, inside: set[ast.AST], taken: set[str]) -> None:
        """Nothing else in the loop has to do with what is changed here, nor this with what the loop changes elsewhere."""
        others = set(walk(self.loop.statement)) - inside - self.shown
        changed = self._changed(inside)
        rebound = taken & {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for name in sorted((changed & self._read(others)) - rebound):
            raise NotExact(f"`{name}` goes on from batch to batch", self._first(inside, name))
        for name in sorted((self._changed(others) & self._read(inside)) - taken):
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
            if node in self.given_away:
                found.add(self._key(node))
        return found - {""}

    def _read(self, nodes: set[ast.AST]) -> set[str]:
        """Without what is only bound, as `_` is."""
        bound = {node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return self._named(nodes - {node for node in bound if not isinstance(self.module.parents[node], ast.AugAssign)})

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


def _is_new(statement: ast.AST) -> bool:
    """`counts = np.zeros(3)`: nobody else holds what a name is bound to. `counts += 1` leaves it what it was."""
    if isinstance(statement, ast.AugAssign):
        return True
    value = statement.value if isinstance(statement, ast.Assign) else None
    made = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Constant | ast.BinOp
    return isinstance(value, made) or (isinstance(value, ast.Call) and called_name(value) in _MAKES)
