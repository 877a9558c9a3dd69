"""Evaluation loops: can the figure be made from gathered rows, or must every process see all of the data?

A figure is exact on N processes when each step of the loop adds up something over samples (counts, summed losses, a
mean times the number of its samples) or collects rows. Then gathering right after the forward gives the original's
figure. Anything else, above all a mean of batch means, depends on how samples are grouped: that loader stays whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.by_batch import Summed, is_cut_from, judge_batches
from accel_migrate.analysis.evaluation.counting import counter_of
from accel_migrate.analysis.evaluation.display import Shown
from accel_migrate.analysis.evaluation.figures import Figures, Kind, NotExact, stored_in
from accel_migrate.analysis.evaluation.forwards import find_forward, runs_model
from accel_migrate.analysis.evaluation.quiet import root_of
from accel_migrate.analysis.evaluation.results import check_after, check_joined, is_length
from accel_migrate.analysis.moves.devices import Move
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import assignment_of, unparse, walk
from accel_migrate.flow.scopes import Function, Module

_COLLECTS = {"append", "extend", "update", "add", "add_batch", "insert"}


@dataclass(frozen=True, eq=False)
class Gather:
    """Gather `values` into `names` right after `after`.

    Each of `sizes` speaks of a local batch and becomes one of gathered rows; each of `parts`, such as
    `batch["labels"]`, becomes the name that its gathered rows have.
    """

    loop: LoaderLoop
    after: ast.stmt
    names: tuple[str, ...]
    values: tuple[str, ...]
    sizes: tuple[tuple[ast.expr, str], ...] = ()
    parts: tuple[tuple[ast.expr, str], ...] = ()
    unread: tuple[ast.stmt, ...] = ()  # `size = y.size(0)`, which nothing reads any more
    prepares = True


@dataclass(frozen=True, eq=False)
class ByHand:
    """What of the script's own distribution an evaluation goes on with."""

    samplers: frozenset[ast.Call]
    collectives: frozenset[ast.Call]


@dataclass(frozen=True, eq=False)
class Whole:
    """The loader is not sharded: every process evaluates everything, for the reason given, with the line that tells it."""

    loop: LoaderLoop
    reason: str
    line: int
    module: Module | None = None  # the file of `line`, if that is not the loop's
    calls: tuple[ast.Call, ...] = ()  # the calls that evaluate, where the loop trains in others
    on_main: bool = False  # the script lets one process evaluate
    by_hand: ByHand | None = None  # the script shares it out, and adds up at `line`
    prepares = False


Evaluation = Gather | Summed | Whole


def judge(roles: Roles, graph: CallGraph, loop: LoaderLoop, moves: list[Move]) -> Gather | Whole:
    """How one evaluation loop is made right on N processes by its rows; `moves` are those of its file."""
    try:
        return _Judge(roles, graph, loop, moves).gather()
    except NotExact as reason:
        return _left_whole(roles, loop, reason)


def judge_by_batch(
    roles: Roles,
    graph: CallGraph,
    whole: Whole,
    trains: frozenset[Function | None] = frozenset(),
    prepares: bool = True,
    trains_if: ast.Compare | None = None,
) -> Summed | Whole:
    """The same by its batches, where it is not known how to do it by rows; `trains` train on its loader."""
    try:
        return judge_batches(roles, graph, whole.loop, trains, prepares, trains_if) or whole
    except NotExact as reason:
        return _left_whole(roles, whole.loop, reason)


def _left_whole(roles: Roles, loop: LoaderLoop, reason: NotExact) -> Whole:
    """With the line that is the reason, and its file if that is another one."""
    owner = next((module for module in roles.project.modules if reason.node in module.parents), loop.module)
    return Whole(loop, str(reason), reason.line, owner)


class _Judge:
    def __init__(self, roles: Roles, graph: CallGraph, loop: LoaderLoop, moves: list[Move]) -> None:
        self.roles = roles
        self.loop = loop
        self.module: Module = loop.module
        self.counter = counter_of(loop.module, loop.statement)
        self.shown = Shown(roles, loop, self.counter)
        self.moved = _moved_names(loop, moves)
        self.names: list[str] = []
        self.values: list[str] = []
        self.parts: list[tuple[ast.expr, str]] = []
        runs = lambda call: runs_model(roles, loop.module, call)  # noqa: E731
        self.figures = Figures(roles, graph, loop.module, self.names, _summed_names(loop), runs)

    def gather(self) -> Gather:
        loop = self.loop.statement
        if loop.orelse:
            raise NotExact("the loop has an `else`", loop)
        stored = (n for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self.figures.local = {name.id for name in stored}
        forward = find_forward(self.figures, loop)
        rest = forward.rest
        before = _statements_before(loop.body, forward.statement)
        for statement in before:
            self._prepares(statement)
        self._find_local(before)
        self._take([*forward.names], [*forward.names])
        sizes = self._batch_names(rest)
        if len(self.names) < 2:
            raise NotExact("nothing of the batch is compared with the model's output", loop)
        for statement in rest:
            self._allowed(statement)
        self._no_length_of_loader()
        self.shown.check()
        check_after(self.module, loop)
        fixed = tuple((size, self.names[1]) for size, name in sizes if name not in self.names)
        unread = tuple(self._unread({size for size, _ in fixed}))
        return Gather(self.loop, forward.after, tuple(self.names), tuple(self.values), fixed, tuple(self.parts), unread)

    def _unread(self, replaced: set[ast.expr]) -> Iterator[ast.stmt]:
        for name in sorted({size.id for size in replaced if isinstance(size, ast.Name)}):
            variable = self.module.variable(next(s for s in replaced if isinstance(s, ast.Name) and s.id == name))
            if replaced.issuperset(self.module.reads(variable)):
                yield from (b.statement for b in self.module.bindings(variable) if b.kind == "assign")

    def _take(self, names: list[str], values: list[str]) -> None:
        self.names += names
        self.values += values

    def _prepares(self, statement: ast.stmt) -> None:
        """What runs before the forward may make the batch ready; what it adds up would be this process's alone."""
        for node in walk(statement) if not self.shown.only_shows(statement) else ():
            if isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise | ast.Try | ast.While):
                raise NotExact("a batch may be left out before the forward", node)
            if isinstance(node, ast.AugAssign) and not self._is_of_batch(node.target):
                raise NotExact("the loop adds up before the forward", node)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COLLECTS:
                raise NotExact("the loop collects before the forward", node)

    def _is_of_batch(self, target: ast.expr) -> bool:
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        return bool(self.roles.role(self.module, target) & Role.BATCH)

    # ---- the batch

    def _find_local(self, before: list[ast.stmt]) -> None:
        """The names of the batch and of what is made of it before the forward, and which of them are its size."""
        names = {node.id for node in walk(self.loop.statement.target) if isinstance(node, ast.Name)} - {self.counter}
        self.figures.local = names
        for node in (node for statement in before for node in walk(statement)):
            if isinstance(node, ast.Assign) and not self.roles.role(self.module, node.value) & Role.MODEL:
                bound = {n.id for t in node.targets for n in walk(t) if isinstance(n, ast.Name)}
                if len(bound) == len(node.targets) == 1 and self.figures.kind(node.value) is Kind.SIZE:
                    self.figures.kinds |= dict.fromkeys(bound, Kind.SIZE)
                names |= bound

    def _batch_names(self, rest: list[ast.stmt]) -> list[tuple[ast.expr, str]]:
        """Take the names and parts of the batch that are read below the gather; return the sizes of local ones."""
        sizes: list[tuple[ast.expr, str]] = []
        for statement in rest:
            for node in walk(statement):
                if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node in self.shown.nodes:
                    continue
                if node.id == self.counter:
                    raise NotExact("the loop's counter takes part in it", node)
                if node.id in self.figures.local and node.id not in self.names:
                    size, part = self._size(node), self._part(node)
                    if size is not None:
                        sizes.append((size, node.id))
                    elif part is not None:
                        self._take_part(part)
                    else:
                        self._check_rows(node)
                        self._take([node.id], [node.id])
        return sizes

    def _part(self, node: ast.Name) -> ast.Subscript | None:
        """`batch["labels"]`: one named part of a batch that is a dictionary."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.slice, ast.Constant):
            variable = self.module.variable(node)
            if isinstance(parent.slice.value, str) and self.roles.of(variable) & Role.BATCH:
                return parent
        return None

    def _take_part(self, part: ast.Subscript) -> None:
        assert isinstance(part.slice, ast.Constant)
        text = self.module.source.code(part)
        if text in self.values:
            self.parts.append((part, self.names[self.values.index(text)]))
            self.figures.parts.add(part)
            return
        name = str(part.slice.value)
        if not name.isidentifier() or self.module.resolve(name, self.module.scope(part)) is not None:
            name = "references"
        if self.module.resolve(name, self.module.scope(part)) is not None:
            raise NotExact(f"`{text}` has no free name to be gathered into", part)
        self._take([name], [text])
        self.parts.append((part, name))
        self.figures.parts.add(part)

    def _check_rows(self, node: ast.Name) -> None:
        """A batch that is a dictionary or list cannot be gathered under its name alone."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.Subscript | ast.Starred) and parent.value is node:
            raise NotExact(f"`{node.id}` is taken apart after the forward", node)
        if any(_is_size(b.value) for b in self.module.bindings(self.module.variable(node))):
            raise NotExact(f"`{node.id}` is a size of this process's batch", node)
        values = [binding.value for binding in self.module.bindings(self.module.variable(node))]
        cut = any(is_cut_from(self.module, value, self.moved) for value in values)
        if self.moved and node.id not in self.moved and not cut:
            raise NotExact(f"`{node.id}` stays on the CPU, and the batches of a shared loader do not", node)
        variable = self.module.variable(node)
        if cut or not self.roles.of(variable) & Role.BATCH:
            raise NotExact(f"`{node.id}` is not known to hold one row for each sample", node)

    def _size(self, node: ast.Name) -> ast.expr | None:
        """`x.size(0)`, `x.shape[0]` or `len(x)` around a name, or the name of one."""
        around = self.module.parents[node]
        for each in (node, around, self.module.parents[around]):
            if isinstance(each, ast.expr) and self.figures.kind(each) is Kind.SIZE:
                return each
        return None

    # ---- what is done below the gather

    def _allowed(self, statement: ast.stmt) -> None:
        if self.shown.only_shows(statement):
            return
        if (assigned := assignment_of(statement)) is not None:
            self._note_assignment(assigned)
        elif isinstance(statement, ast.AugAssign):
            self._added(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._allowed_call(statement.value)
        elif isinstance(statement, ast.With):
            for inner in statement.body:
                self._allowed(inner)
        elif isinstance(statement, ast.For):
            self._repeated(statement)
        elif not (isinstance(statement, ast.If) and self._allowed_if(statement)):
            raise NotExact("the loop does more than add up its figures", statement)

    def _added(self, statement: ast.AugAssign) -> None:
        if not isinstance(statement.op, ast.Add):
            raise NotExact("the figure is not a sum", statement)
        if isinstance(statement.target, ast.Subscript) and self.figures.kind(statement.target.slice) is not Kind.FIXED:
            raise NotExact("results are stored by position", statement)
        if not self.figures.extends(statement.value):
            self.figures.check_additive(statement.value)

    def _note_assignment(self, statement: ast.Assign) -> None:
        if len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            known = name in self.names or name in self.figures.kinds
            if not known and any(isinstance(n, ast.Name) and n.id == name for n in walk(statement.value)):
                self._carried_on(name, statement.value)
                return
        for target in statement.targets:
            for part in walk(target):
                if isinstance(part, ast.Name):
                    self.figures.assign(part.id, statement.value)
                elif isinstance(part, ast.Subscript | ast.Attribute):
                    raise NotExact(stored_in(part), statement)

    def _carried_on(self, name: str, value: ast.expr) -> None:
        """`total = total + ...`, `worst = max(worst, ...)`: a figure that goes on from batch to batch."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            for old, new in ((value.left, value.right), (value.right, value.left)):
                if isinstance(old, ast.Name) and old.id == name:
                    self.figures.check_additive(new)
                    return
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("max", "min"):
            others = [part for part in value.args if not (isinstance(part, ast.Name) and part.id == name)]
            if len(others) == 1 and len(value.args) == 2:
                self.figures.check_extreme(others[0])
                return
        raise NotExact("the figure is not a sum", value)

    def _allowed_call(self, call: ast.Call) -> None:
        """Rows that are collected, a metric that is fed rows, a meter that weighs a mean by its samples."""
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in ("append", "extend") and len(call.args) == 1:
            if isinstance(function.value, ast.Name | ast.Attribute):
                self.figures.check_rows(call.args[0])
                if function.attr == "append":
                    check_joined(self.module, self.loop.statement, function.value)
                return
        if isinstance(function, ast.Attribute) and function.attr == "add_batch" and not call.args:
            for keyword in call.keywords:
                self.figures.check_rows(keyword.value)
            return
        if self._is_weighted_meter(call):
            if [self.figures.kind(given) for given in call.args] == [Kind.MEAN, Kind.SIZE]:
                return
            raise NotExact("a meter is fed something else than a batch mean and its number of samples", call)
        raise NotExact("the loop does more than add up its figures", call)

    def _is_weighted_meter(self, call: ast.Call) -> bool:
        """`meter.update(mean, size)` of a class of the project that adds up `mean * size` and `size`."""
        target = self.roles.function(self.module, call)
        if target is None or len(call.args) != 2 or call.keywords:
            return False
        names = [argument.arg for argument in target.node.args.args[1:]]
        sums = sorted(unparse(s.value) for s in walk(target.node) if isinstance(s, ast.AugAssign))
        if len(names) != 2:
            return False
        value, count = names
        return sums in (sorted([f"{value} * {count}", count]), sorted([f"{count} * {value}", count]))

    def _allowed_if(self, statement: ast.If) -> bool:
        """Sums under a condition that does not look at the batch."""
        if statement.orelse or self.figures.kind(statement.test) is not Kind.FIXED:
            return False
        for inner in statement.body:
            self._allowed(inner)
        return True

    def _repeated(self, loop: ast.For) -> None:
        kind = self.figures.kind(loop.iter)
        if loop.orelse or kind is Kind.MIXED:
            raise NotExact("the loop does more than add up its figures", loop)
        if kind is Kind.ROWS:
            self._row_by_row(loop)
        for statement in loop.body if kind is Kind.FIXED else ():
            self._allowed_for_each(statement)

    def _allowed_for_each(self, statement: ast.stmt) -> None:
        """`for c in range(classes): correct[c] += ...`: sums; the order of rows that are collected would be another one."""
        if isinstance(statement, ast.AugAssign) and self.figures.extends(statement.value):
            raise NotExact("rows are collected several times for each batch", statement)
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            raise NotExact("the loop does more than add up its figures", statement)
        self._allowed(statement)

    def _row_by_row(self, loop: ast.For) -> None:
        """`for label, prediction in zip(labels, predictions): ...`: each gathered row counts by itself."""
        own = {node.id for node in walk(loop.target) if isinstance(node, ast.Name)}
        for node in (node for statement in loop.body for node in walk(statement)):
            if isinstance(node, ast.Break | ast.Return) or (
                isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Add)
            ):
                raise NotExact("the figure is not a sum", node)
            if isinstance(node, ast.Name) and node.id not in own and node.id in {*self.names, *self.figures.kinds}:
                raise NotExact(f"`{node.id}` is read whole for each of its rows", node)

    def _no_length_of_loader(self) -> None:
        """`len(loader)` counts this process's batches after prepare, so a figure over it would change."""
        loader = unparse(self.loop.loader)
        function = self.loop.function
        statements = function.body if function is not None else self.module.block(self.loop.statement)
        for node in (node for statement in statements for node in walk(statement)):
            if is_length(node) and unparse(node.args[0]) == loader and not self.shown.counts_rounds(node):  # type: ignore[attr-defined]
                raise NotExact("a figure is divided by the number of batches", node)


def _statements_before(body: list[ast.stmt], forward: ast.stmt) -> list[ast.stmt]:
    """What a round of the loop runs before its forward."""
    found: list[ast.stmt] = []
    for statement in body:
        if statement is forward:
            return found
        if any(node is forward for node in walk(statement)):
            return [*found, *_statements_before(statement.body, forward)]  # type: ignore[attr-defined]
        found.append(statement)
    return found


def _summed_names(loop: LoaderLoop) -> set[str]:
    """The names that a loop adds to: what is asked of them depends on the batches so far."""
    found: set[str] = set()
    for node in walk(loop.statement):
        target = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COLLECTS:
            target = node.func.value  # type: ignore[assignment]
        if target is not None:
            found.add(root_of(target))  # of `right[kind] += 1` not the place
    return found - {"self"}


def _moved_names(loop: LoaderLoop, moves: list[Move]) -> set[str]:
    """What the loop moves to the device, by the names that are moved and those that the results get."""
    names: set[str] = set()
    for move in moves:
        around = list(loop.module.ancestors(move.call))
        if loop.statement not in around:
            continue
        names |= {node.id for node in walk(move.receiver) if isinstance(node, ast.Name)}
        for parent in around[: around.index(loop.statement)]:
            if isinstance(parent, ast.Assign):
                names |= {n.id for target in parent.targets for n in walk(target) if isinstance(n, ast.Name)}
            elif isinstance(parent, ast.ListComp | ast.DictComp | ast.GeneratorExp):
                names |= {n.id for g in parent.generators for n in walk(g.iter) if isinstance(n, ast.Name)}
            elif isinstance(parent, ast.For):
                names |= {n.id for n in walk(parent.iter) if isinstance(n, ast.Name)}
    return names


def _is_size(value: ast.expr | None) -> bool:
    """`x.shape`, `x.size()`, `len(x)`, or one entry of the first two."""
    value = value.value if isinstance(value, ast.Subscript) else value
    called = value.func if isinstance(value, ast.Call) else value
    return (isinstance(value, ast.Call) and is_length(value)) or getattr(called, "attr", "") in ("shape", "size")
