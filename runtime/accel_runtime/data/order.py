"""Data reached by index: the batches of indices are sharded, and each process loads only its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from accel_runtime.collectives import Collectives
from accel_runtime.data.drawing import Check, Followed, Given, replayed
from accel_runtime.data.iteration import Loader, Pairs, Share
from accel_runtime.data.randomness import shared_draws
from accel_runtime.data.sharding import Sharding, rows_of, shard, shard_order, steps_of
from accel_runtime.data.source import (
    SkippedIndices,
    Source,
    Start,
    apart,
    clone,
    length_of,
    samples_of,
    track_of,
)
from accel_runtime.errors import CheckpointError
from accel_runtime.proxy import Proxy


class Ordered(Source):
    """The user's loader with its batches of indices cut down to those of this process."""

    def __init__(self, loader: Loader, indices: ShardedIndices, place: str) -> None:
        super().__init__(loader)
        self.indices = indices
        self.place = place
        self.pads = indices.pads
        self.followed = Followed(indices, loader)
        self.numbers = indices.numbers

    def __iter__(self) -> Pairs:
        # In order: the shares follow the batches one to one.
        batches = self.workers.iterated(clone(self.loader, **{self.place: self.followed}, in_order=True))
        self.track = self.followed.track
        return zip(batches, drained(self.indices.shares), self.track.keys())

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def batch_sampler(self) -> Any:
        return ShownIndices(self.indices) if type(self.indices) is ShardedIndices else self.loader.batch_sampler

    def rows(self) -> tuple[int, int] | None:
        return self.indices.rows(samples_of(self.loader))

    def skipping(self, batches: int) -> Source:
        return Ordered(self.loader, self.indices.skipping(batches), self.place)

    def beginning(self, batches: int, check: Check | None) -> Source:
        return Ordered(self.loader, self.indices.beginning(batches, check), self.place)

    def resumed(self, batches: int, start: Start) -> tuple[Pairs, deque[Any]]:
        if start.opened is None or start.first is None:
            return super().resumed(batches, start)
        start.restore(self.loader)
        self.track = track_of(start, self.loader)
        indices, left_out = replayed(self.indices, start.opened, start.first, batches, self.loader)
        shares = self.indices.shares
        for _ in range(batches):
            shares.popleft()
        given = Given(self.track.copied(indices), self.indices)
        return zip(apart(self.loader, **{self.place: given}), drained(shares), self.track.keys()), left_out


class ShardedIndices:
    """Stands where the loader's sampler stood. The `shares` of the latest epoch follow its batches one to one."""

    def __init__(self, batches: Any, sharding: Sharding, collectives: Collectives, skipped: int = 0) -> None:
        self.batches = batches
        self.sharding = sharding
        self.collectives = collectives
        self.skipped = skipped
        self.shares: deque[Share] = deque()

    def __iter__(self) -> Iterator[Any]:
        # Each epoch has its own queue: workers of an epoch that was left may still be filling the old one.
        self.shares = deque()
        return self._epoch(self.shares)

    def __len__(self) -> int:
        return max(steps_of(len(self.batches), self._tail(), self.sharding) - self.skipped, 0)

    def rows(self, samples: int | None) -> tuple[int, int] | None:
        """Of a pass over so many samples: this process's, and all."""
        return None if samples is None else (rows_of(samples, self.sharding), samples)

    def skipping(self, batches: int) -> ShardedIndices:
        return type(self)(self.batches, self.sharding, self.collectives, self.skipped + batches)

    def beginning(self, batches: int, check: Check | None) -> ShardedIndices:
        return type(self)(SkippedIndices(self.batches, batches, check), self.sharding, self.collectives, self.skipped)

    @property
    def numbers(self) -> tuple[int, int] | None:
        return self.sharding.numbers

    @property
    def pads(self) -> bool:
        if self.sharding.drops_round or not self.sharding.even:
            return False
        samples = self._samples()
        return samples is None or samples % (self.sharding.part * self.sharding.size) != 0

    def _epoch(self, shares: deque[Share]) -> Iterator[Any]:
        for index, (indices, share) in enumerate(self._parts()):
            if index >= self.skipped:
                shares.append(share)
                yield indices

    def _parts(self) -> Iterator[tuple[Any, Share]]:
        inner = getattr(self.batches, "sampler", self.batches)
        if type(self.batches) is BatchSampler and has_whole_order(inner):
            yield from shared_draws(sharded_order(inner, self.sharding), inner, self.collectives)
        else:
            yield from shard(
                shared_draws(self.batches, inner, self.collectives, self.sharding.per_round), self.sharding
            )

    def _samples(self) -> int | None:
        return length_of(self.batches.sampler) if type(self.batches) is BatchSampler else None

    def _tail(self) -> int:
        size, samples = self.sharding.batch_size or 0, self._samples()
        return size if samples is None or self.sharding.drop_last or not size else samples % size or size


class ShownIndices(Proxy):
    """The user's batch sampler to whoever asks the loader for it, with the batches of this process."""

    indices: ShardedIndices

    def __init__(self, indices: ShardedIndices) -> None:
        super().__init__(indices.batches)
        self.__dict__["indices"] = indices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def batch_sampler(self) -> Any:
        return self.behind

    @property
    def even_batches(self) -> bool:
        return self.indices.sharding.even

    @property
    def split_batches(self) -> bool:
        return self.indices.sharding.split


class ShardedItems(ShardedIndices):
    """For loaders with `batch_size=None`: each index stands for a whole batch."""

    def _parts(self) -> Iterator[tuple[Any, Share]]:
        single = (
            [index] for index in shared_draws(self.batches, self.batches, self.collectives, self.sharding.per_round)
        )
        for (index,), share in shard(single, self.sharding):
            yield index, share.of_items()


class DistributedIndices(ShardedIndices):
    """A sampler that already gives each process its own shard is not sharded again."""

    numbers = None

    @property
    def sampler(self) -> Any:
        return getattr(self.batches, "sampler", self.batches)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skipped, 0)

    def rows(self, samples: int | None) -> tuple[int, int] | None:
        own, data = len(self.sampler), getattr(self.sampler, "dataset", ())
        return own, length_of(data) or own * self.sharding.size

    def beginning(self, batches: int, check: Check | None) -> ShardedIndices:
        # Its sampler deals the samples out one by one, so whole rounds are what can be left out.
        if batches % (size := self.sharding.size):
            raise CheckpointError(
                f"{batches} batches of this epoch were used, which is no whole number of rounds of {size} processes, and "
                f"{type(self.sampler).__name__} deals out whole rounds; load the checkpoint on as many processes as have "
                "saved it, or leave the sampler out: prepare() divides the data"
            )
        return self.skipping(batches // size)

    @property
    def pads(self) -> bool:
        sampler = self.sampler
        # Of torch's own it is known where the repeats are; samplers like it are taken at their word.
        known = type(sampler) is DistributedSampler and not sampler.drop_last
        return known and len(sampler.dataset) % sampler.num_replicas != 0

    def _parts(self) -> Iterator[tuple[Any, Share]]:
        sampler = self.sampler
        start = 0
        for indices in self.batches:
            single = not hasattr(indices, "__len__")
            rows = 1 if single else len(indices)
            share = Share(rows, self._real(sampler, start, rows) if self.pads else None)
            yield indices, share.of_items() if single else share
            start += rows

    def _real(self, sampler: Any, start: int, rows: int) -> tuple[int, ...] | None:
        """Process r holds samples r, r + N, r + 2N, ...; those past the end of the data are repeats."""
        size, samples = sampler.num_replicas, len(sampler.dataset)
        held = [(samples - rank + size - 1) // size for rank in range(size)]
        real = tuple(min(max(count - start, 0), rows) for count in held)
        return None if min(real) == rows else real


def drained(shares: deque[Share]) -> Iterator[Share]:
    while True:
        yield shares.popleft()


def has_whole_order(sampler: Any) -> bool:
    """Whether the sampler is one whose epoch is a permutation or a range known at its start."""
    if type(sampler) is SequentialSampler:
        return True
    return (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    )


def sharded_order(sampler: SequentialSampler | RandomSampler, sharding: Sharding) -> Iterator[tuple[list[int], Share]]:
    """One process's part of an epoch whose order is drawn as the sampler itself would, but never listed as a whole."""
    if isinstance(sampler, SequentialSampler):
        yield from shard_order(range(len(sampler.data_source)), sharding)
        return
    samples = len(sampler.data_source)
    generator = sampler.generator or torch.Generator().manual_seed(
        int(torch.empty((), dtype=torch.int64).random_().item())
    )
    # The same permutation in half the memory, where the indices fit.
    kind = torch.int32 if samples < 2**31 else torch.int64
    yield from shard_order(torch.randperm(samples, generator=generator, dtype=kind), sharding)
    if sampler.generator is not None:
        # The sampler ends its epoch with a draw for a remainder of none, and the user's generator feels it.
        torch.randperm(samples, generator=generator, dtype=kind)
