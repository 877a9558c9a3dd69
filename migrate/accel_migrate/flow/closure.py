"""All that steps lead to: the one loop under every question of what comes from what."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node")


def closure(first: Iterable[Node], steps: Callable[[Node], Iterable[Node]], most: int = sys.maxsize) -> Iterator[Node]:
    """Some things and all that steps lead to from them, each once, the nearest first; no steps are taken beyond `most`."""
    found = dict.fromkeys(first)
    pending = list(found)
    for each in pending:
        yield each
        for other in steps(each) if len(found) < most else ():
            if other not in found:
                found[other] = None
                pending.append(other)


def descent(first: Iterable[Node], steps: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """The same in the order of reading: all that one step leads to before the next is taken."""
    found: set[Node] = set()
    pending = [iter(first)]
    while pending:
        each = next((other for other in pending[-1] if other not in found), None)
        if each is None:
            pending.pop()
        else:
            found.add(each)
            yield each
            pending.append(iter(steps(each)))
