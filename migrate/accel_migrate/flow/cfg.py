"""A control-flow graph of one scope, and what can be asked about its statements.

Dominance and reachability follow every edge, exceptions in a `try` included. Post-dominance and control dependence
follow the program as it is written: they hold as long as no statement fails that is not under a handler.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import NamedTuple

from accel_migrate.flow.once import once
from accel_migrate.flow.order import Order, order, reverse
from accel_migrate.flow.points import Points, build

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Decision(NamedTuple):
    """A test and the way it must turn out: of an `if` or `while`, of a loop that goes on, of a case or of a `try`."""

    statement: ast.AST
    test: ast.expr | None  # None for a `try` (True: it failed) and for a case without a guard
    branch: bool


@once
def graph_of(tree: ast.Module, scope: Scope) -> Graph:
    """The graph of a scope in a file: all who read the same file ask for it."""
    return Graph(scope)


class Graph:
    """The order in which the statements of a module, function or method run. Classes in it run where they stand."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._graph = build(scope)

    @property
    def points(self) -> Points:
        return self._graph

    def holds(self, statement: ast.AST) -> bool:
        """Whether a statement belongs to this scope."""
        return statement in self._graph.of

    def is_reached(self, statement: ast.AST) -> bool:
        """Whether any run can come to a statement."""
        return not self._reached.isdisjoint(self._graph.of[statement])

    def dominates(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether every run that comes to `second` has been through the whole of `first`, or through its head."""
        return self._forward.always_before(self._graph.of[first], self._graph.of[second])

    def post_dominates(self, second: ast.AST, first: ast.AST) -> bool:
        """Whether every run that goes through `first` comes to `second` before the scope ends."""
        return self._backward.always_before(self._graph.of[second], self._graph.of[first])

    def reachable(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether a run can come to `second` after it went through `first`; of one statement: whether it runs again."""
        after = 0
        for point in self._graph.of[first]:
            after |= self._after[point]
        return any(after >> point & 1 for point in self._graph.of[second])

    def reachable_past(self, first: ast.AST | None, second: ast.AST | None, without: Collection[ast.AST]) -> bool:
        """Whether a run can come to `second` after `first` and go through none of some statements on the way.

        None is the beginning of the scope for `first`, and its end for `second`, other than by an exception. A loop is gone
        through in each of its rounds.
        """
        barred = {point for statement in without for point in self._graph.of.get(statement, ())}
        barred |= {point for statement in without for point in self._rounds.get(statement, ())}
        ends = self._graph.ends
        aims = set(self._graph.of[second]) if second is not None else ends - barred
        seen = set(barred) - aims
        begun = self._graph.of[first] if first is not None else [0]
        if second is None and not ends.isdisjoint(begun):
            return True
        waiting = [after for point in begun for after in self._every_edge[point]]
        while waiting:
            point = waiting.pop()
            if point in aims:
                return True
            if point not in seen:
                seen.add(point)
                waiting += self._every_edge[point]
        return False

    def arriving(self, at: ast.AST, steps: Iterable[ast.AST | None], past: Collection[ast.AST]) -> set[ast.AST | None]:
        """Those of some statements from which a run can come to `at` and go through none of `past` on the way but themselves.

        None is the beginning of the scope.
        """
        of, rounds = self._graph.of, self._rounds
        walls = {point for each in past for point in (*of.get(each, ()), *rounds.get(each, ()))}
        seen: set[int] = set()
        waiting = [before for point in of[at] for before in self.before[point]]
        while waiting:
            point = waiting.pop()
            if point not in seen:
                seen.add(point)
                if point not in walls:
                    waiting += self.before[point]
        return {each for each in steps if not seen.isdisjoint(self._leaving(each, each in past))}

    def _leaving(self, statement: ast.AST | None, rounds: bool) -> list[int]:
        """Where a run leaves a statement, a `for` also in each of its rounds."""
        if statement is None:
            return [0]
        return [*self._graph.of[statement], *(self._rounds.get(statement, ()) if rounds else ())]

    def in_loop(self, statement: ast.AST) -> bool:
        """Whether a statement can run more than once in one run of its scope."""
        return self.reachable(statement, statement)

    @once
    def control_dependences(self, statement: ast.AST) -> tuple[Decision, ...]:
        """Every test that decides whether a statement runs, the nearest first, with the branch that leads to it."""
        found: dict[Decision, None] = {}
        waiting = list(self._graph.of[statement])
        seen = set(waiting)
        for point in waiting:
            for origin, branch in self._dependences.get(point, ()):
                node = self._graph.points[origin].node
                found[Decision(node, _test(node), branch)] = None
                if origin not in seen:
                    seen.add(origin)
                    waiting.append(origin)
        return tuple(found)

    @cached_property
    def _rounds(self) -> dict[ast.AST, list[int]]:
        """Where each `for` binds what it goes through, once in each round."""
        found: dict[ast.AST, list[int]] = {}
        for number, point in enumerate(self._graph.points):
            if point.part == "target":
                found.setdefault(point.node, []).append(number)
        return found

    @cached_property
    def _every_edge(self) -> list[list[int]]:
        graph = self._graph
        return [after + failed if failed else after for after, failed in zip(graph.successors, graph.raising)]

    @cached_property
    def before(self) -> list[list[int]]:
        """For each point those that a run may come from, by an exception too."""
        return reverse(self._every_edge)

    @cached_property
    def _reached(self) -> set[int]:
        """The points that a run can come to."""
        return _flooded(self._every_edge, [0], set())

    @cached_property
    def _after(self) -> list[int]:
        """For each point all that a run can come to after it, as bits: most questions are about every statement."""
        edges = self._every_edge
        found = [0] * len(edges)
        changed = True
        while changed:
            changed = False
            for point in range(len(edges) - 1, -1, -1):
                bits = 0
                for after in edges[point]:
                    bits |= found[after] | 1 << after
                if bits != found[point]:
                    found[point] = bits
                    changed = True
        return found

    @cached_property
    def _forward(self) -> Order:
        return order(self._every_edge, 0, self.before)

    @cached_property
    def _backward(self) -> Order:
        """The graph from its exit; a loop that never ends is taken to end at its head."""
        before = reverse(self._graph.successors)
        reached = _flooded(before, [1], set())
        heads = [number for number, point in enumerate(self._graph.points) if point.part == "test"]
        for point in (*heads, *range(len(before) - 1, 1, -1)):
            if point not in reached:
                before[1].append(point)
                _flooded(before, [point], reached)
        return order(before, 1, reverse(before))

    @cached_property
    def _dependences(self) -> dict[int, list[tuple[int, bool]]]:
        """For each point the tests that it depends on directly."""
        found: dict[int, list[tuple[int, bool]]] = {}
        parents = self._backward.parents
        for (origin, after), branch in self._graph.branches.items():
            if len(self._graph.successors[origin]) == 1:
                continue  # `while True`
            stop = parents[origin]
            point = after
            while point not in (stop, -1):
                found.setdefault(point, []).append((origin, branch))
                point = parents[point]
        return found


def _flooded(edges: list[list[int]], start: list[int], seen: set[int]) -> set[int]:
    waiting = list(start)
    while waiting:
        point = waiting.pop()
        if point not in seen:
            seen.add(point)
            waiting += edges[point]
    return seen


def _test(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.If | ast.While):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    return node.guard if isinstance(node, ast.match_case) else None
