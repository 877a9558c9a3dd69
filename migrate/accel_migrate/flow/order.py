"""Dominance in a directed graph of numbered points, after Cooper, Harvey and Kennedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property


class Order:
    """What every path from the root to a point goes through."""

    def __init__(
        self, edges: Sequence[Sequence[int]], root: int, parents: list[int], entered: list[int], number: list[int]
    ) -> None:
        # The nearest point that every path goes through; -1 for the root and what is not reached.
        self.parents = parents
        self._edges = edges
        self._root = root
        self._entered = entered
        self._number = number

    def is_reached(self, point: int) -> bool:
        return self._number[point] >= 0

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        return _spans(self.parents, self._entered)

    def always_before(self, first: Sequence[int], second: Iterable[int]) -> bool:
        """Whether every path to one of `second` goes through one of `first`, which is itself before itself."""
        targets = [point for point in second if self.is_reached(point)]
        if len(first) == 1:
            return all(self._dominates(first[0], point) for point in targets)
        return self._without(set(first)).isdisjoint(targets)

    def _dominates(self, first: int, second: int) -> bool:
        begun, done = self._spans
        return self.is_reached(first) and begun[first] <= begun[second] <= done[first]

    def _without(self, walls: set[int]) -> set[int]:
        """What can be reached around these points."""
        seen = set(walls)
        waiting = [self._root]
        while waiting:
            point = waiting.pop()
            if point not in seen:
                seen.add(point)
                waiting += self._edges[point]
        return seen - walls


def reverse(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each point those from which an edge leads to it."""
    found: list[list[int]] = [[] for _ in edges]
    for origin, after in enumerate(edges):
        for point in after:
            found[point].append(origin)
    return found


def order(edges: Sequence[Sequence[int]], root: int, before: Sequence[Sequence[int]]) -> Order:
    """The dominance of all points that can be reached from the root; `before` has the edges the other way round."""
    number, entered = _postorder(edges, root)
    parents = [-1] * len(edges)
    parents[root] = root
    changed = True
    while changed:
        changed = False
        for point in reversed(entered):
            if point == root:
                continue
            nearest = -1
            for origin in before[point]:
                if parents[origin] >= 0:
                    nearest = origin if nearest < 0 else _meet(origin, nearest, parents, number)
            if parents[point] != nearest:
                parents[point] = nearest
                changed = True
    parents[root] = -1
    return Order(edges, root, parents, entered, number)


def _meet(first: int, second: int, parents: list[int], number: list[int]) -> int:
    while first != second:
        while number[first] < number[second]:
            first = parents[first]
        while number[second] < number[first]:
            second = parents[second]
    return first


def _postorder(edges: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int]]:
    """The number of each point as a depth-first walk leaves it, and the points in that order."""
    number = [-1] * len(edges)
    left: list[int] = []
    seen = {root}
    stack = [(root, iter(edges[root]))]
    while stack:
        point, rest = stack[-1]
        for after in rest:
            if after not in seen:
                seen.add(after)
                stack.append((after, iter(edges[after])))
                break
        else:
            number[point] = len(left)
            left.append(point)
            stack.pop()
    return number, left


def _spans(parents: list[int], entered: list[int]) -> tuple[list[int], list[int]]:
    """For each point when a walk over the tree of dominance comes to it, and the last that it comes to below it."""
    below: list[list[int]] = [[] for _ in parents]
    for point in entered:
        if parents[point] >= 0:
            below[parents[point]].append(point)
    first, last = [-1] * len(parents), [-1] * len(parents)
    count = 0
    stack = [(entered[-1], False)]
    while stack:
        point, done = stack.pop()
        if done:
            last[point] = count - 1
            continue
        first[point] = count
        count += 1
        stack.append((point, True))
        stack += [(inner, False) for inner in below[point]]
    return first, last
