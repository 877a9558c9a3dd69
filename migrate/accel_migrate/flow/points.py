"""The points that execution passes in one scope, and the edges between them: built once, statement by statement."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Edges = list[tuple[int, bool | None]]  # where control comes from, and the branch it took there
MOST_NESTED_COPIES = 3  # of a `finally` inside others; deeper ones are built once for every way out

_WAYS = {ast.Return: "return", ast.Raise: "raise", ast.Break: "break", ast.Continue: "continue"}
_NEVER_RETURN = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})


class Point(NamedTuple):
    """A simple statement, or one step of a compound one: its test, its target, the name that it binds at the end."""

    node: ast.AST
    part: str = "statement"  # statement, test, iterable, target, subject, enter, raised, bound, forgotten


@dataclass
class Points:
    """The graph of one scope. Point 0 is the entry, 1 the exit; an explicit `return` or `raise` leads to the exit."""

    points: list[Point] = field(default_factory=list)
    successors: list[list[int]] = field(default_factory=list)
    raising: list[list[int]] = field(default_factory=list)  # where an exception leads that no statement asks for
    branches: dict[tuple[int, int], bool] = field(default_factory=dict)
    of: dict[ast.AST, list[int]] = field(default_factory=dict)  # a statement's first point, in each of its copies
    ends: set[int] = field(default_factory=set)  # points after which the scope ends as it should, not by `raise`


@dataclass
class _Frame:
    """A loop, a `try` with handlers or a `try` with `finally` around the statements that are being built."""

    kind: str  # loop, handlers, finally
    breaks: Edges = field(default_factory=list)
    continues: Edges = field(default_factory=list)
    raised: Edges = field(default_factory=list)  # by `raise`
    failed: list[int] = field(default_factory=list)  # by any statement
    catches_all: bool = False
    pending: dict[str, Edges] = field(default_factory=dict)  # ways out that wait for the `finally`
    copies: bool = True


def build(scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Points:
    """The graph of a scope's own statements; those of classes in it run where the class stands."""
    builder = _Builder()
    body = [] if isinstance(scope, ast.Lambda) else scope.body
    graph = builder.graph
    entry, leave = builder.add(scope, "entry", []), builder.add(scope, "exit", [])
    graph.of.clear()
    last = builder.block(body, [(entry, None)])
    graph.ends |= {point for point, _ in last}
    builder.connect(last, leave)
    return graph


class _Builder:
    def __init__(self) -> None:
        self.graph = Points()
        self.frames: list[_Frame] = []

    # ---- edges

    def add(self, node: ast.AST, part: str, edges: Edges) -> int:
        graph = self.graph
        number = len(graph.points)
        graph.points.append(Point(node, part))
        graph.successors.append([])
        graph.raising.append([])
        self.connect(edges, number)
        for frame in reversed(self.frames):
            if frame.kind != "loop":
                frame.failed.append(number)
                break
        return number

    def first(self, node: ast.AST, part: str, edges: Edges) -> int:
        """The point by which questions about a statement are answered."""
        number = self.add(node, part, edges)
        self.graph.of.setdefault(node, []).append(number)
        return number

    def connect(self, edges: Edges, to: int) -> None:
        for origin, branch in edges:
            self.graph.successors[origin].append(to)
            if branch is not None:
                self.graph.branches[origin, to] = branch

    def fail(self, origins: Sequence[int], to: int) -> None:
        for origin in dict.fromkeys(origins):
            self.graph.raising[origin].append(to)

    def jump(self, kind: str, edges: Edges) -> None:
        """Lead edges to where a break, continue, return or raise goes, through every `finally` on the way."""
        for frame in reversed(self.frames):
            if frame.kind == "finally":
                frame.pending.setdefault(kind, []).extend(edges)
                return
            if frame.kind == "loop" and kind in ("break", "continue"):
                (frame.breaks if kind == "break" else frame.continues).extend(edges)
                return
            if frame.kind == "handlers" and kind == "raise":
                frame.raised.extend(edges)
                return
        if kind == "return":
            self.graph.ends |= {point for point, _ in edges}
        self.connect(edges, 1)

    # ---- statements

    def block(self, statements: Sequence[ast.stmt], edges: Edges) -> Edges:
        for statement in statements:
            compound = _COMPOUND.get(type(statement))
            edges = compound(self, statement, edges) if compound is not None else self._simple(statement, edges)
        return edges

    def _simple(self, statement: ast.stmt, edges: Edges) -> Edges:
        point = self.first(statement, "statement", edges)
        after: Edges = [(point, None)]
        way = "raise" if _ends_here(statement) else _WAYS.get(type(statement))
        if way is None:
            return after
        self.jump(way, after)
        return []

    def _if(self, statement: ast.If, edges: Edges) -> Edges:
        test = self.first(statement, "test", edges)
        known = _constant(statement.test)
        taken = self.block(statement.body, [(test, True)] if known is not False else [])
        return taken + self.block(statement.orelse, [(test, False)] if known is not True else [])

    def _while(self, statement: ast.While, edges: Edges) -> Edges:
        test = self.first(statement, "test", edges)
        known = _constant(statement.test)
        frame = self._loop(statement.body, [(test, True)] if known is not False else [], test)
        return frame.breaks + self.block(statement.orelse, [(test, False)] if known is not True else [])

    def _for(self, statement: ast.For | ast.AsyncFor, edges: Edges) -> Edges:
        iterable = self.first(statement, "iterable", edges)
        test = self.add(statement, "test", [(iterable, None)])
        target = self.add(statement, "target", [(test, True)])
        frame = self._loop(statement.body, [(target, None)], test)
        return frame.breaks + self.block(statement.orelse, [(test, False)])

    def _loop(self, body: Sequence[ast.stmt], edges: Edges, test: int) -> _Frame:
        frame = _Frame("loop")
        self.frames.append(frame)
        last = self.block(body, edges)
        self.frames.pop()
        self.connect(last + frame.continues, test)
        return frame

    def _with(self, statement: ast.With | ast.AsyncWith, edges: Edges) -> Edges:
        enter = self.first(statement, "enter", edges)
        if not any(_suppresses(item.context_expr) for item in statement.items):
            return self.block(statement.body, [(enter, None)])
        frame = _Frame("handlers", catches_all=True)
        self.frames.append(frame)
        last = self.block(statement.body, [(enter, None)])
        self.frames.pop()
        return [*last, (self._caught(statement, frame, enter), None)]

    def _class(self, statement: ast.ClassDef, edges: Edges) -> Edges:
        head = self.first(statement, "statement", edges)
        last = self.block(statement.body, [(head, None)])
        return [(self.add(statement, "bound", last), None)]

    def _match(self, statement: ast.Match, edges: Edges) -> Edges:
        waiting: Edges = [(self.first(statement, "subject", edges), None)]
        after: Edges = []
        for case in statement.cases:
            test = self.first(case, "test", waiting)
            after += self.block(case.body, [(test, True)])
            waiting = [] if case.guard is None and _irrefutable(case.pattern) else [(test, False)]
        return after + waiting

    def _try(self, statement: ast.Try, edges: Edges) -> Edges:
        head = self.first(statement, "statement", edges)
        if not statement.finalbody:
            return self._guarded(statement, head)
        copies = sum(frame.kind == "finally" for frame in self.frames) < MOST_NESTED_COPIES
        frame = _Frame("finally", copies=copies)
        self.frames.append(frame)
        frame.failed.append(head)
        last = self._guarded(statement, head)
        self.frames.pop()
        return self._finally(statement, frame, last)

    def _finally(self, statement: ast.Try, frame: _Frame, last: Edges) -> Edges:
        """The `finally` after its block ended, and once more for every other way out of it."""
        after = self.block(statement.finalbody, last) if frame.copies and last else []
        abrupt = self.add(statement, "raised", [edge for edges in frame.pending.values() for edge in edges])
        self.fail(frame.failed, abrupt)
        if not frame.copies:
            self.connect(last, abrupt)
        end = self.block(statement.finalbody, [(abrupt, None)])
        for kind in frame.pending:
            self.jump(kind, end)
        self._fails_on([point for point, _ in end])
        return after if frame.copies else end

    def _fails_on(self, origins: Sequence[int]) -> None:
        """An exception that goes on outwards from these points."""
        for frame in reversed(self.frames):
            if frame.kind != "loop":
                frame.failed.extend(origins)
                return
        self.fail(origins, 1)

    def _guarded(self, statement: ast.Try, head: int) -> Edges:
        """The block, its handlers and its `else`."""
        if not statement.handlers:
            return self.block(statement.orelse, self.block(statement.body, [(head, None)]))
        frame = _Frame("handlers", catches_all=any(_catches_all(handler) for handler in statement.handlers))
        self.frames.append(frame)
        last = self.block(statement.body, [(head, False)])
        self.frames.pop()
        after = self.block(statement.orelse, last)
        raised = self._caught(statement, frame, head)
        for handler in statement.handlers:
            caught = self.first(handler, "statement", [(raised, None)])
            end = self.block(handler.body, [(caught, None)])
            after += [(self.add(handler, "forgotten", end), None)] if handler.name and end else end
        return after

    def _caught(self, statement: ast.AST, frame: _Frame, head: int) -> int:
        """The point where an exception out of a block arrives; what its handlers do not name goes on outwards."""
        raised = self.add(statement, "raised", [(head, True), *frame.raised])
        self.fail(frame.failed, raised)
        if not frame.catches_all:
            self._fails_on([raised])
        return raised


_COMPOUND: dict[type, Callable[[_Builder, Any, Edges], Edges]] = {  # each takes the statement of its own kind
    ast.If: _Builder._if,
    ast.While: _Builder._while,
    ast.For: _Builder._for,
    ast.AsyncFor: _Builder._for,
    ast.With: _Builder._with,
    ast.AsyncWith: _Builder._with,
    ast.ClassDef: _Builder._class,
    ast.Match: _Builder._match,
    ast.Try: _Builder._try,
    ast.TryStar: _Builder._try,
}


def ends(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing that follows some statements runs after them: on every way they raise, exit or jump elsewhere."""
    return any(
        type(statement) in _WAYS
        or _ends_here(statement)
        or (
            isinstance(statement, ast.With)
            and ends(statement.body)
            and not any(_suppresses(i.context_expr) for i in statement.items)
        )
        or (isinstance(statement, ast.If) and ends(statement.body) and ends(statement.orelse))
        for statement in block
    )


def _ends_here(statement: ast.stmt) -> bool:
    """Whether a statement never lets control go on: it ends the process, or asserts what is false."""
    if isinstance(statement, ast.Expr):
        return never_returns(statement.value)
    return isinstance(statement, ast.Assert) and _constant(statement.test) is False


def never_returns(value: ast.expr) -> bool:
    """Whether an expression is a call that ends the process."""
    return isinstance(value, ast.Call) and dotted(value.func) in _NEVER_RETURN


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _constant(test: ast.expr) -> bool | None:
    """What a test always is; None when it can be both."""
    return bool(test.value) if isinstance(test, ast.Constant) else None


def _suppresses(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and dotted(context.func).split(".")[-1] == "suppress"


def _irrefutable(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _irrefutable(pattern.pattern))


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or dotted(handler.type) == "BaseException"
