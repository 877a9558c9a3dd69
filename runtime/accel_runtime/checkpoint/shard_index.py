"""Where the blocks of sharded tensors are in a checkpoint: what torch calls metadata and pickles, here as JSON.

A tensor is cut at the same places in every row, column and so on, so its blocks are told by the cuts and not one by one:
the index of a run on 4,096 processes is as long as that of 8.
"""

from __future__ import annotations

import functools
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import msgspec
import torch

from accel_runtime.checkpoint.encoding import DTYPES
from accel_runtime.checkpoint.files import inside, read_text
from accel_runtime.checkpoint.tensors import NAMES
from accel_runtime.errors import CheckpointError

NAME = "shards"
Natural = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Box = tuple[tuple[int, int], ...]  # of each dimension, where it begins and ends


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor, in the file of the process of that rank."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rank: int


class Every(msgspec.Struct, frozen=True):
    """Ranks at equal distances: that of the n-th block is `first + n * step`."""

    first: Natural
    step: Natural

    def __getitem__(self, number: int) -> int:
        return self.first + number * self.step


Cuts = tuple[Annotated[int, msgspec.Meta(ge=1)] | tuple[Natural, ...], ...]
Ranks = Every | tuple[Natural, ...]


class Sharded(msgspec.Struct, frozen=True):
    """One tensor of the run. `cuts` has for each dimension a length, after which it is cut every time, or all places;
    `ranks` are those of the blocks, the last dimension counting fastest."""

    dtype: str
    size: tuple[Natural, ...]
    cuts: Cuts
    ranks: Ranks

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def counts(self) -> list[int]:
        """How many blocks there are along each dimension."""
        return [-(-size // cut) if isinstance(cut, int) else len(cut) for size, cut in zip(self.size, self.cuts)]

    def blocks(self, box: Box | None = None) -> Iterator[Block]:
        """All blocks, or those that have something in the box; without looking at the others."""
        if 0 in self.size:
            return
        counts = self.counts()
        wanted = [self._wanted(dim, *limits) for dim, limits in enumerate(box or [(0, size) for size in self.size])]
        for place in product(*wanted):
            number = 0
            for index, count in zip(place, counts):
                number = number * count + index
            edges = [self._edges(dim, index) for dim, index in enumerate(place)]
            offsets = tuple(start for start, _ in edges)
            yield Block(offsets, tuple(end - start for start, end in edges), self.ranks[number])

    def check(self, name: str, processes: int) -> None:
        """Refuses what does not tell every element of the tensor once, in a file of a process that has saved."""
        dense = [cut for cut in self.cuts if not isinstance(cut, int)]
        cut_well = all(
            cut and cut[0] == 0 and all(one < other for one, other in zip(cut, (*cut[1:], size)))
            for cut, size in zip(self.cuts, self.size)
            if not isinstance(cut, int) and size
        )
        known = self.dtype in DTYPES and DTYPES[self.dtype] in NAMES
        if not known or not cut_well or len(self.cuts) != len(self.size) or sum(map(len, dense)) > 1 << 20:
            raise CheckpointError(f"the cuts of {name[:200]} are not those of a tensor")
        blocks = 0 if 0 in self.size else math.prod(self.counts())
        if isinstance(self.ranks, Every):
            last = self.ranks[max(blocks - 1, 0)] if self.ranks.step or blocks < 2 else processes
            fits = last < processes
        else:
            fits = len(self.ranks) == blocks and all(rank < processes for rank in self.ranks)
        if not fits:
            raise CheckpointError(f"the blocks of {name[:200]} are not where {processes} processes have saved them")

    def _wanted(self, dim: int, start: int, end: int) -> range:
        cut = self.cuts[dim]
        if isinstance(cut, int):
            return range(start // cut, -(-end // cut))
        return range(bisect_right(cut, start) - 1, bisect_left(cut, end))

    def _edges(self, dim: int, index: int) -> tuple[int, int]:
        cut, size = self.cuts[dim], self.size[dim]
        if isinstance(cut, int):
            return index * cut, min((index + 1) * cut, size)
        return cut[index], cut[index + 1] if index + 1 < len(cut) else size


Index = dict[str, Sharded]  # by the name of the part, a slash, and the tensor's name in it


def sharded_as(name: str, dtype: torch.dtype, size: tuple[int, ...], blocks: list[Block]) -> Sharded:
    """The tensor that these blocks make up."""
    filled = tuple(block for block in blocks if 0 not in block.sizes)
    if (found := _grid(size, filled)) is None:
        raise CheckpointError(f"{name} is sharded in blocks that make up no grid, and such checkpoints are not written")
    return Sharded(str(dtype).removeprefix("torch."), size, *found)


# Layers are alike, and on thousands of processes it takes a while to look at all blocks.
@functools.lru_cache(maxsize=32)
def _grid(size: tuple[int, ...], blocks: tuple[Block, ...]) -> tuple[Cuts, Ranks] | None:
    places = sorted(blocks, key=lambda block: block.offsets)
    cuts = tuple(_cut(sorted({block.offsets[dim] for block in blocks}), length) for dim, length in enumerate(size))
    ranks = _ranks([block.rank for block in places])
    return (cuts, ranks) if list(Sharded("", size, cuts, ranks).blocks()) == places else None


def block_name(tensor: str, offsets: tuple[int, ...]) -> str:
    """Under which name a file holds a block."""
    return f"{tensor}@{','.join(map(str, offsets))}"


def shards_of(rank: int) -> str:
    return f"{NAME}_{rank}"


def read_index(folder: Path, processes: int) -> Index:
    path = inside(folder, f"{NAME}.json")
    try:
        index = msgspec.convert(json.loads(read_text(path)), Index)
        for name, one in index.items():
            one.check(name, processes)
    except (ValueError, RecursionError, CheckpointError) as error:
        raise CheckpointError(f"{path} does not say where shards are as save_state writes it ({error})") from error
    return index


def _cut(starts: list[int], length: int) -> int | tuple[int, ...]:
    step = starts[1] if len(starts) > 1 else max(length, 1)
    return step if starts == list(range(0, length, step)) or not starts else tuple(starts)


def _ranks(ranks: list[int]) -> Every | tuple[int, ...]:
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    first = ranks[0] if ranks else 0
    regular = step > 0 and ranks == list(range(first, first + step * len(ranks), step))
    return Every(first, step) if regular else tuple(ranks)
