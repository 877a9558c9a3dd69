"""Which variables are bound for certain at each point of a scope, and which bindings may reach it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.definitions import Events, Names, Read
from accel_migrate.flow.scopes import Scope, Variable


class Assignment:
    """Definite assignment in one module or function, classes in it included, as a compiler would work it out."""

    def __init__(self, names: Names, scope: Scope) -> None:
        self.names = names
        self.scope = scope
        self.graph = graph_of(scope.module.tree, scope.node)  # type: ignore[arg-type]
        points = self.graph.points
        self._events = [names.events(point) for point in points.points]
        self._bits: dict[Variable, int] = {}

    def unbound(self) -> Iterator[Read]:
        """Reads of this scope's own variables that a run may come to before they are bound."""
        for number, events in enumerate(self._events):
            if events is None or not events.reads or self._into[number] is None:
                continue
            state = self._applied_early(events, self._into[number] or 0)
            for read in events.reads:
                variable = self.names.resolve(read.name, read.scope)
                if variable is not None and self._is_ours(variable) and not state & self._bit(variable):
                    yield read

    def is_bound(self, variable: Variable, statement: ast.AST) -> bool:
        """Whether a variable is bound whenever a run comes to a statement; what no run comes to has all bound."""
        states = [self._into[point] for point in self.graph.points.of[statement]]
        return all(state is None or state & self._bit(variable) for state in states)

    def _is_ours(self, variable: Variable) -> bool:
        if variable in self.names.bound_elsewhere:
            return False
        scope: Scope | None = variable.scope
        while scope is not None and scope is not self.scope:
            scope = scope.parent if scope.is_class else None
        return scope is self.scope

    def _bit(self, variable: Variable) -> int:
        if variable not in self._bits:
            self._bits[variable] = 1 << len(self._bits)
        return self._bits[variable]

    @cached_property
    def _into(self) -> list[int | None]:
        """For each point the variables that are bound on every path to it; None where no path leads."""
        points = self.graph.points
        count = len(points.points)
        into: list[int | None] = [None] * count
        out: list[int | None] = [None] * count
        start = 0
        for name in self.scope.parameters:
            start |= self._bit(Variable(self.scope, name))
        changes = [self._change(events) for events in self._events]
        into[0] = out[0] = start
        waiting = list(reversed(range(count)))
        queued = [True] * count
        while waiting:
            number = waiting.pop()
            queued[number] = False
            if number:
                state: int | None = None
                for origin in self.graph.before[number]:
                    known = out[origin]
                    if known is not None:
                        state = known if state is None else state & known
                if state is None:
                    continue
                into[number] = state
                gain, loss = changes[number]
                new = (state | gain) & ~loss
                if new == out[number]:
                    continue
                out[number] = new
            for after in (*points.successors[number], *points.raising[number]):
                if not queued[after]:
                    queued[after] = True
                    waiting.append(after)
        return into

    def _change(self, events: Events | None) -> tuple[int, int]:
        gain = loss = 0
        if events is not None:
            for variable in (*events.early, *events.binds):
                gain |= self._bit(variable)
            for variable in events.deletes:
                loss |= self._bit(variable)
        return gain, loss

    def _applied_early(self, events: Events, state: int) -> int:
        for variable in events.early:
            state |= self._bit(variable)
        return state
