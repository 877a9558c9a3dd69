"""Blocks of sharded tensors are told by their cuts, found by arithmetic, and refused where they make up no tensor."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
import torch
from accel_runtime.checkpoint.shard_index import Block, Every, Sharded, sharded_as
from accel_runtime.errors import CheckpointError


def grid(size: tuple[int, ...], starts: tuple[tuple[int, ...], ...]) -> list[Block]:
    """All blocks between these starts, the n-th on rank n."""
    blocks = []
    edges = [list(zip(cuts, (*cuts[1:], length))) for cuts, length in zip(starts, size)]
    for rank, box in enumerate(product(*edges)):
        blocks.append(Block(tuple(a for a, _ in box), tuple(b - a for a, b in box), rank))
    return blocks


@pytest.mark.parametrize(
    ("size", "starts"),
    [
        ((10, 3), ((0, 4, 8), (0,))),
        ((10, 6), ((0, 5), (0, 2, 4))),
        ((9,), ((0, 4, 5),)),
        ((), ()),
        ((1, 1), ((0,), (0,))),
    ],
)
def test_blocks_come_back_and_every_box_finds_its_own(size, starts) -> None:
    blocks = grid(size, starts)
    sharded = sharded_as("x", torch.float32, size, blocks[::-1])
    sharded = msgspec.convert(msgspec.to_builtins(sharded), Sharded)
    sharded.check("x", len(blocks))
    assert sorted(sharded.blocks(), key=lambda block: block.rank) == blocks
    for box in product(*([(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in size)):
        touched = [
            block
            for block in blocks
            if all(o < b and a < o + s for o, s, (a, b) in zip(block.offsets, block.sizes, box))
        ]
        assert list(sharded.blocks(box)) == touched


def test_the_index_does_not_grow_with_the_processes() -> None:
    sizes = []
    for ranks in (8, 4096):
        size = (ranks * 2, 4)
        blocks = [Block((2 * rank, 0), (2, 4), rank) for rank in range(ranks)]
        sizes.append(len(msgspec.json.encode(sharded_as("x", torch.float32, size, blocks))))
    assert sizes[1] <= sizes[0] + 8


def test_empty_shards_and_empty_tensors() -> None:
    blocks = [Block((0,), (1,), 0), Block((1,), (1,), 1), Block((2,), (0,), 2)]
    assert list(sharded_as("x", torch.int64, (2,), blocks).blocks()) == blocks[:2]
    assert list(sharded_as("x", torch.int64, (0, 3), [Block((0, 0), (0, 3), 0)]).blocks()) == []


def test_blocks_that_make_up_no_grid_are_not_saved() -> None:
    bricks = [Block((0, 0), (1, 2), 0), Block((0, 2), (1, 2), 1), Block((1, 0), (1, 1), 2), Block((1, 1), (1, 3), 3)]
    with pytest.raises(CheckpointError, match="x is sharded in blocks that make up no grid"):
        sharded_as("x", torch.float32, (2, 4), bricks)


@pytest.mark.parametrize(
    "planted",
    [
        Sharded("save", (4,), (2,), Every(0, 1)),
        Sharded("complex128", (4,), (2,), Every(0, 1)),
        Sharded("float32", (4,), (), Every(0, 1)),
        Sharded("float32", (4,), ((1, 2),), (0, 1)),
        Sharded("float32", (4,), ((0, 2, 2),), (0, 1, 1)),
        Sharded("float32", (4,), ((0, 9),), (0, 1)),
        Sharded("float32", (4,), ((),), ()),
        Sharded("float32", (4,), (2,), Every(1, 1)),
        Sharded("float32", (4,), (2,), Every(0, 0)),
        Sharded("float32", (4,), (2,), (0, 2)),
        Sharded("float32", (4,), (2,), (0,)),
        Sharded("float32", (10**18, 10**18), (1, 1), Every(0, 1)),
        Sharded("float32", (10**18,), (1,), Every(0, 0)),
    ],
    ids=repr,
)
def test_what_tells_no_tensor_of_two_processes_is_refused(planted: Sharded) -> None:
    with pytest.raises(CheckpointError, match=r"the (cuts|blocks) of x are not"):
        planted.check("x", 2)
