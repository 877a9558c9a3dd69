"""What an evaluation only shows: prints, bars and clocks, which no figure depends on."""

from __future__ import annotations

import ast

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.evaluation.showing import CLOCKS, READS, makes_display, only_shows, writes
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import all_arguments, called_name, calls_method, walk
from accel_migrate.flow.reaching import reaching

_BARS = {"set_description", "set_postfix", "set_postfix_str", "set_description_str"}
_LOGS = {"info", "debug", "warning", "critical", "error"}


class Shown:
    """Tells the statements of one loop that only show; `counter` is the loop's own number of a batch."""

    def __init__(self, roles: Roles, loop: LoaderLoop, counter: str | None) -> None:
        self.roles = roles
        self.module = loop.module
        self.counter = counter
        self.clocks = self._clocks(loop.function or loop.module.tree)
        self.named: set[str] = set()
        self.nodes = self._nodes(loop)
        while texts := self._texts(loop) - self.named:
            self.named |= texts
            self.nodes = self._nodes(loop)

    def _nodes(self, loop: LoaderLoop) -> set[ast.AST]:
        return {
            node
            for statement in walk(loop.statement)
            if isinstance(statement, ast.stmt) and statement is not loop.statement and self.only_shows(statement)
            for node in walk(statement)
        }

    def _texts(self, loop: LoaderLoop) -> set[str]:
        """Names that a round binds, from what it has so far, for the sake of what it shows and of nothing else."""
        bound = [s for s in walk(loop.statement) if isinstance(s, ast.Assign) and self._only_reads(s.value)]
        names = {target.id for s in bound for target in s.targets if isinstance(target, ast.Name)}
        used: set[str] = set()
        for node in self.module.walk(loop.function or self.module.tree, ast.Name):
            stored = isinstance(node.ctx, ast.Store) and self.module.parents[node] in bound
            if not stored and node not in self.nodes:
                used.add(node.id)
        return names - used

    def only_shows(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            inner = [*statement.body, *statement.orelse]
            return self._only_reads(statement.test) and all(self.only_shows(one) for one in inner)
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Attribute) and self._is_bar(target.value):
                return self._only_reads(statement.value)  # `bar.desc = f"..."`
            return isinstance(target, ast.Name) and target.id in self.clocks | self.named
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return isinstance(statement, ast.Pass)
        call = statement.value
        given = all_arguments(call)
        if calls_method(call, "update"):
            return self._is_bar(call.func.value) or (bool(given) and all(self._is_time(part) for part in given))
        return self._shows(call) and all(self._only_reads(part) for part in given)

    def check(self) -> None:
        """Raise NotExact where a figure so far is divided by the loop's counter: it counts this process's batches."""
        self.check_bars()
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv) and self._counts(node.right):
                raise NotExact("a figure that it shows is divided by the loop's counter", node)

    def counts_rounds(self, length: ast.AST) -> bool:
        """Whether `len(loader)` is only shown, or tells a bar, or another display, how far it goes."""
        around = self.module.parents[length]
        if isinstance(around, ast.Call) and makes_display(self.roles, self.module, around):
            return True
        return length in self.nodes or (isinstance(around, ast.keyword) and around.arg == "total")

    def _counts(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id == self.counter for part in walk(node))

    def check_bars(self) -> None:
        """Raise NotExact for `total / (bar.n + 1)`: a bar counts this process's batches."""
        divided = [n for n in self.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.FloorDiv)]
        for part in (part for node in divided for part in walk(node.right) if isinstance(part, ast.Attribute)):
            if part.attr == "n" and self._is_bar(part.value):
                raise NotExact("a figure that it shows is divided by how far a bar is", part)

    def _shows(self, call: ast.Call) -> bool:
        if writes(self.module, call) or only_shows(self.roles, self.module, call):
            return True
        if not isinstance(call.func, ast.Attribute):
            return False
        dotted = self.module.full_name(call.func)
        return call.func.attr in _BARS or (dotted.startswith("logging.") and call.func.attr in _LOGS)

    def _is_bar(self, node: ast.expr) -> bool:
        values = self._values(node)
        return bool(values) and all(
            isinstance(value, ast.Call) and self.module.full_name(value.func).partition(".")[0] == "tqdm"
            for value in values
        )

    def _values(self, node: ast.expr) -> list[ast.expr | None]:
        return [binding.value for binding in reaching(self.module, node)]

    def _only_reads(self, node: ast.expr) -> bool:
        for part in walk(node):
            if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield):
                return False
            if isinstance(part, ast.Call) and not self._is_clock(part):
                name = called_name(part)
                if name not in READS:
                    return False
        return True

    def _is_clock(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.module.full_name(node.func) in CLOCKS

    def _is_time(self, node: ast.expr) -> bool:
        """`time.time() - end`."""
        if isinstance(node, ast.BinOp):
            return self._is_time(node.left) and self._is_time(node.right)
        return self._is_clock(node) or (isinstance(node, ast.Name) and node.id in self.clocks)

    def _clocks(self, around: ast.AST) -> set[str]:
        """Names that hold a time and nothing else."""
        bound: dict[str, list[ast.expr]] = {}
        for node in self.module.walk(around, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node.value)
        names = {name for name, values in bound.items() if all(self._is_clock(value) for value in values)}
        stored = [node.id for node in self.module.walk(around, ast.Name) if isinstance(node.ctx, ast.Store)]
        return {name for name in names if stored.count(name) == len(bound[name])}
