"""SLURM's short forms written out: `gpu[01-03,7],login` is five hosts, `2(x3),1` is four machines' tasks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from accel_runtime.errors import WorldError

_PART = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_REPEATED = re.compile(r"^(\d+)(?:\(x(\d+)\))?$")


def hosts_of(nodes: str) -> list[str]:
    """Every host of a node list, in its order; numbers keep their leading zeros."""
    if nodes.count("[") != nodes.count("]"):
        raise WorldError(f"the node list {nodes!r} has a bracket without its pair")
    parts = [match.group() for match in _PART.finditer(nodes) if match.group()]
    return [host for part in parts for host in _expanded(part)]


def first_host(nodes: str) -> str:
    return hosts_of(nodes)[0]


def tasks_on(node: int, tasks_per_node: str) -> int:
    """How many tasks run on the machine with this number."""
    counts: list[int] = []
    for part in tasks_per_node.split(","):
        match = _REPEATED.match(part.strip())
        if match is None:
            raise WorldError(f"{tasks_per_node!r} is not a list of tasks per machine such as 4(x2),1")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    # A plain number is the count on every machine.
    return counts[node] if node < len(counts) else counts[-1]


def _expanded(part: str) -> Iterator[str]:
    texts = _BRACKET.split(part)
    # split() alternates: text, inside of a bracket, text, ...
    choices = [list(_numbers(text)) if index % 2 else [text] for index, text in enumerate(texts)]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def _numbers(inside: str) -> Iterator[str]:
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        if not dash:
            yield low
            continue
        try:
            yield from (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
        except ValueError:
            raise WorldError(f"{piece!r} in a node list is not a range of numbers") from None
