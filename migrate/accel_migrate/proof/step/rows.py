"""Where the rows of a batch are in a value, seen by its shapes on different numbers of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


class Stop(Exception):
    """The proof ends here, and nothing is known; the message says at which operator and why."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Along `dim` an index is `(p * rows + row) * after + q`, and entry by entry only that row had a part in it."""

    dim: int
    before: int = 1
    after: int = 1
    any_order: bool = False  # every row has the same number, or one of its own that was drawn

    def matches(self, other: Rows) -> bool:
        return self.any_order or other.any_order or (self.before, self.after) == (other.before, other.after)


Law = Rows | None  # None: no row had a part in it, and it is the same on every process


def scaled(shapes: Sequence[Sequence[int]], worlds: Sequence[int]) -> list[int]:
    """The dimensions that hold rows: N processes have an Nth of each; all others must be the same everywhere."""
    if len({len(shape) for shape in shapes}) > 1:
        raise Stop("has another number of dimensions on other numbers of processes")
    found = []
    for dim, sizes in enumerate(zip(*shapes)):
        if len(set(sizes)) == 1:
            continue
        if any(size * world != sizes[0] for size, world in zip(sizes, worlds)):
            raise Stop(f"has a shape that depends on the samples ({', '.join(map(str, sizes))})")
        found.append(dim)
    return found


def reshaped(law: Rows, old: Sequence[int], new: Sequence[int], dim: int) -> Rows:
    """The same entries in another shape whose rows are along `dim`."""
    if law.any_order:
        return Rows(dim, any_order=True)
    before, after = prod(old[: law.dim]) * law.before, law.after * prod(old[law.dim + 1 :])
    outer, inner = prod(new[:dim]), prod(new[dim + 1 :])
    if before % outer or after % inner:
        raise Stop("takes rows apart")
    return Rows(dim, before // outer, after // inner)
