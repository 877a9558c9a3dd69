"""The same computation in several traces: which value of one is which of the others, from a loss back to its leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accel_migrate.proof.step.graph import Node, Steps
from accel_migrate.proof.step.operators import UNCOMPARED
from accel_migrate.proof.step.rows import Stop

Ids = tuple[int, ...]  # one number for each trace


class Matched:
    """The values of the first trace that were reached, each with its like in the others."""

    def __init__(self, traces: Sequence[Steps]) -> None:
        self.traces = traces
        self.ids: dict[int, Ids] = {}

    def reach(self, roots: Ids) -> None:
        """Follow both back to where they come from; Stop where they part."""
        waiting = [roots]
        while waiting:
            ids = tuple(trace.behind(each) for trace, each in zip(self.traces, waiting.pop()))
            known = self.ids.setdefault(ids[0], ids)
            if known is not ids:
                if known != ids:
                    raise Stop(f"{self.named(ids[0])} is used in another way")
                continue
            waiting.extend(self._inputs(ids))

    def _inputs(self, ids: Ids) -> list[Ids]:
        nodes = [trace.node(each) for trace, each in zip(self.traces, ids)]
        first = nodes[0]
        if first is None or None in nodes:
            self._compare_leaves(ids)
            return []
        others = [node for node in nodes if node is not None]
        if len({node.op for node in others}) > 1:
            names = " and ".join(dict.fromkeys(f"{node.name} at {node.place}" for node in others))
            raise Stop(f"the steps have other operators: {names}")
        if len({node.made.index(each) for node, each in zip(others, ids)}) > 1:
            raise Stop(f"{first.name} at {first.place} is used in another way")
        return [*zipped(first, others)]

    def _compare_leaves(self, ids: Ids) -> None:
        sources = {trace.values[each].source for trace, each in zip(self.traces, ids)}
        kinds = {source[0] for source in sources}
        if len(sources) > 1:
            what = "a tensor that is made outside of torch or before the step" if kinds == {"outside"} else "a value"
            raise Stop(f"{what} is another one on other numbers of processes{self._user(ids[0])}")

    def _user(self, value: int) -> str:
        """Who takes it in."""
        node = next((node for node in self.traces[0].nodes if value in node.inputs), None)
        return f" ({node.name} at {node.place})" if node else ""

    def named(self, value: int) -> str:
        node = self.traces[0].node(value)
        return f"{node.name} at {node.place}" if node else "a value from outside"


def zipped(first: Node, nodes: Sequence[Node]) -> Iterator[Ids]:
    """The values that these operators take, side by side; their numbers must be equal."""
    for name in first.args:
        yield from _zipped(first, name, [node.args.get(name) for node in nodes])


def _zipped(node: Node, name: str, arguments: Sequence[Any]) -> Iterator[Ids]:
    first = arguments[0]
    if all(isinstance(each, dict) for each in arguments):
        yield tuple(each["value"] for each in arguments)
    elif all(isinstance(each, list) for each in arguments) and len({len(each) for each in arguments}) == 1:
        for items in zip(*arguments):
            yield from _zipped(node, name, items)
    elif name not in UNCOMPARED and any(each != first and not (each != each and first != first) for each in arguments):
        if not (node.name == "slice" and name == "end"):
            told = ", ".join(dict.fromkeys(str(each) for each in arguments))
            raise Stop(f"{node.name} at {node.place} takes other numbers on other numbers of processes ({told})")
