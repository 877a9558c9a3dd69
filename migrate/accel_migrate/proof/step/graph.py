"""The operators of the first training steps of one process, as frozen data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Operators that hand on what they were given; the shape and the numbers stay.
NEUTRAL = frozenset({"alias", "clone", "contiguous", "detach", "lift_fresh", "_to_copy", "lift_fresh_copy"})


@dataclass(frozen=True, slots=True)
class Value:
    shape: tuple[int, ...]
    dtype: str
    source: tuple[
        Any, ...
    ]  # ("node", i), ("batch", number, leaf), ("parameter", i), ("gradient", i), ("outside", bits)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator that ran; in its arguments a value is `{"value": number}`."""

    op: str
    args: Mapping[str, Any]
    made: tuple[int, ...]
    file: str
    line: int
    ignores: bool = False  # some of the targets, as a criterion may
    random: bool = False  # it draws from torch's generator

    @property
    def draws(self) -> bool:
        """Random numbers; attention does so only with dropout."""
        return self.random and self.args.get("dropout_p") != 0

    @property
    def name(self) -> str:
        """Without namespace, overload and the mark of an operator that works in place."""
        space, name, *_ = self.op.split(".")
        bare = name if name.startswith("__") else name.removesuffix("_")
        return bare if space == "aten" else f"{space}.{bare}"

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "a library"

    @property
    def inputs(self) -> list[int]:
        return list(values_in(list(self.args.values())))


@dataclass(frozen=True, slots=True)
class Moment:
    """A batch, a backward pass, a step, or something that a proof must know of; `at` is how many nodes came before."""

    kind: str
    at: int
    file: str
    line: int
    facts: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "a library"


@dataclass(frozen=True, slots=True)
class Steps:
    world: int
    rank: int
    stopped: str  # why the trace has no end
    optimizers: int
    stepped: int
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    moments: tuple[Moment, ...]

    def of(self, kind: str) -> list[Moment]:
        return [moment for moment in self.moments if moment.kind == kind]

    def node(self, value: int) -> Node | None:
        source = self.values[value].source
        return self.nodes[source[1]] if source[0] == "node" else None

    def behind(self, value: int) -> int:
        """The value that this one is a plain copy of."""
        node = self.node(value)
        while node is not None and node.name in NEUTRAL and len(node.inputs) == 1:
            given, made = (self.values[each] for each in (node.inputs[0], value))
            if (given.shape, given.dtype) != (made.shape, made.dtype):
                break
            value = node.inputs[0]
            node = self.node(value)
        return value


def values_in(argument: Any) -> Iterator[int]:
    if isinstance(argument, dict):
        yield argument["value"]
    elif isinstance(argument, list):
        for each in argument:
            yield from values_in(each)


def steps_of(folder: Path) -> tuple[Steps, ...]:
    """What the processes of a run traced, by rank."""
    files = sorted(folder.glob("step-*.json"), key=lambda path: int(path.stem.removeprefix("step-")))
    return tuple(_read(json.loads(file.read_text("utf-8"))) for file in files)


def _read(told: Mapping[str, Any]) -> Steps:
    return Steps(
        told["world"],
        told["rank"],
        told["stopped"],
        told["optimizers"],
        told["stepped"],
        tuple(Value(tuple(v["shape"]), v["dtype"], tuple(v["source"])) for v in told["values"]),
        tuple(Node(**{**node, "made": tuple(node["made"])}) for node in told["nodes"]),
        tuple(_moment(dict(event)) for event in told["events"]),
    )


def _moment(event: dict[str, Any]) -> Moment:
    return Moment(event.pop("kind"), event.pop("at"), event.pop("file"), event.pop("line"), event)
