"""Which samples each process gets: pure functions from an epoch's batches to one process's part of them.

A round is what all processes take at once: N batches, or with `split` one batch in N slices. The last round may be
short. With `even` it is filled up with the first samples of the epoch, so that every process sees full batches. With
`intact` batches are dealt out as they are, and only a process that would have none gets one that another has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import TypeVar

from torch import Tensor

from accel_runtime.data.iteration import Share
from accel_runtime.errors import ConfigError

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Sharding:
    """How batches are dealt out. `batch_size` is None when the batch sampler decides it batch by batch."""

    rank: int
    size: int
    batch_size: int | None
    drop_last: bool = False
    split: bool = False
    even: bool = True
    intact: bool = False

    def __post_init__(self) -> None:
        if self.split and self.batch_size is None:
            raise ConfigError("split_batches needs a batch size; this loader's batch sampler decides it batch by batch")
        if self.split and self.batch_size is not None and self.batch_size % self.size:
            raise ConfigError(
                "split_batches needs a batch size that is a round multiple of the number of processes; "
                f"{self.batch_size} is not a multiple of {self.size}"
            )

    @property
    def per_round(self) -> int:
        """The batches of one round."""
        return 1 if self.split else self.size

    @property
    def drops_round(self) -> bool:
        """Whether a round that is short is left out: intact batches have lost a short one only, if any."""
        return self.drop_last and not self.intact

    @property
    def numbers(self) -> tuple[int, int] | None:
        """Which batch of a full round is this process's, and how many they are; None where each gets a slice of one."""
        return None if self.split and self.size > 1 else (self.rank, self.size)

    @property
    def part(self) -> int:
        """The samples of one process in a full round."""
        assert self.batch_size is not None
        return self.batch_size // self.size if self.split else self.batch_size


def shard(batches: Iterable[Sequence[Sample]], sharding: Sharding) -> Iterator[tuple[list[Sample], Share]]:
    """The batches of one process, each with what is real in its round."""
    stream = iter(batches)
    following = list(islice(stream, sharding.per_round))
    head = following
    while following:
        current, following = following, list(islice(stream, sharding.per_round))
        cut_by_sample = sharding.batch_size is not None and (sharding.split or not following) and not sharding.intact
        deal = _deal_samples if cut_by_sample else _deal_batches
        yield from deal(current, head, sharding)


def shard_samples(samples: Iterable[Sample], sharding: Sharding) -> Iterator[tuple[list[Sample], Share, list[Sample]]]:
    """As `shard`, for samples that come one by one, each with the samples of the whole round; others' are only read."""
    stream, whole = iter(samples), Share(sharding.part)
    per_round, start = sharding.part * sharding.size, sharding.rank * sharding.part
    head = current = list(islice(stream, per_round))
    while len(current) == per_round:
        yield current[start : start + sharding.part], whole, current
        current = list(islice(stream, per_round))
    if current:
        rest = current
        dealt = _deal_round(
            len(rest), sharding, lambda p: rest[p] if p < len(rest) else head[(p - len(rest)) % len(head)]
        )
        for mine, share in dealt:
            yield mine, share, rest


def shard_order(order: Tensor | range, sharding: Sharding) -> Iterator[tuple[list[int], Share]]:
    """As `shard`, for an epoch whose whole order is at hand: only this process's part of it is touched, and kept."""
    part, whole = sharding.part, Share(sharding.part)
    per_round = part * sharding.size
    rounds, rest = divmod(len(order), per_round)
    tail, head = order[rounds * per_round :], order[: min(per_round, len(order))]
    if isinstance(order, Tensor):
        # Copies: a view would keep the order of all processes in memory for the whole epoch.
        mine = order[: rounds * per_round].view(rounds, sharding.size, part)[:, sharding.rank].clone()
        tail, head = tail.clone(), head.clone()  # type: ignore[union-attr]
        del order
        for indices in mine:
            yield indices.tolist(), whole
    else:
        for start in range(sharding.rank * part, rounds * per_round, per_round):
            yield list(order[start : start + part]), whole
    if rest:
        yield from _deal_round(rest, sharding, lambda p: int(tail[p] if p < rest else head[(p - rest) % len(head)]))


def steps_of(batches: int, tail: int, sharding: Sharding) -> int:
    """How many batches one process gets out of `batches`, the last of which holds `tail` samples."""
    if sharding.split:
        reached = sharding.even or not batches or tail > sharding.rank * sharding.part
        return batches if reached else batches - 1
    rounds, left = divmod(batches, sharding.size)
    if not left or sharding.drops_round:
        return rounds
    return rounds + (1 if sharding.even or sharding.rank < left else 0)


def rows_of(samples: int, sharding: Sharding) -> int:
    """How many samples one process gets in a pass over `samples`, those that fill its last round among them."""
    rounds, rest = divmod(samples, sharding.part * sharding.size)
    if not rest or sharding.drops_round:
        return rounds * sharding.part
    own = min(max(rest - sharding.rank * sharding.part, 0), sharding.part)
    return rounds * sharding.part + (sharding.part if sharding.even else own)


def _deal_samples(
    batches: list[Sequence[Sample]], head: list[Sequence[Sample]], sharding: Sharding
) -> Iterator[tuple[list[Sample], Share]]:
    """Cuts a round sample by sample, wherever its batches began."""
    samples, first = list(chain.from_iterable(batches)), list(chain.from_iterable(head))
    rest = len(samples)
    yield from _deal_round(rest, sharding, lambda p: samples[p] if p < rest else first[(p - rest) % len(first)])


def _deal_round(
    samples: int, sharding: Sharding, sample: Callable[[int], Sample]
) -> Iterator[tuple[list[Sample], Share]]:
    """This process's part of a round that has so many samples; `sample` goes on with the head of the epoch."""
    part, start = sharding.part, sharding.rank * sharding.part
    if samples == part * sharding.size:
        yield [sample(position) for position in range(start, start + part)], Share(part)
        return
    if sharding.intact and sharding.drop_last:
        samples -= samples % part
    if not samples or sharding.drops_round:
        return
    real = tuple(min(max(samples - rank * part, 0), part) for rank in range(sharding.size))
    mine = real[sharding.rank] if sharding.intact or not sharding.even else part
    if sharding.intact and not mine:
        start, mine = 0, real[0]  # the first batch of the round once more
    if mine:
        yield [sample(position) for position in range(start, start + mine)], Share(mine, real)


def _deal_batches(
    batches: list[Sequence[Sample]], head: list[Sequence[Sample]], sharding: Sharding
) -> Iterator[tuple[list[Sample], Share]]:
    """Deals out whole batches: where the sampler chose their sizes, cutting them anew would lose its choice."""
    missing = sharding.size - len(batches)
    if missing and sharding.drops_round:
        return
    real = (*(len(batch) for batch in batches), *[0] * missing) if missing else None
    filled = [*batches, *islice(cycle(head), missing if sharding.even else 0)]
    if sharding.rank < len(filled):
        mine = list(filled[sharding.rank])
        yield mine, Share(len(mine), real)
