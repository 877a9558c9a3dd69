"""A loader's batches of indices, cut down to those of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Share
from accel_runtime.data.randomness import shared_draws
from accel_runtime.data.sharding import Sharding, shard, shard_order, steps_of


class ShardedBatches(Sampler[Any]):
    """Stands where the loader's batch sampler stood; `shares` of the latest epoch follow its batches one to one."""

    def __init__(self, batches: Any, sharding: Sharding, collectives: Collectives, skipped: int = 0) -> None:
        self.batches = batches
        self.sharding = sharding
        self.collectives = collectives
        self.skipped = skipped
        self.shares: deque[Share] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["batches"], name)

    def __iter__(self) -> Iterator[Any]:
        # Each epoch has its own queue: workers of an epoch that was left may still be filling the old one.
        self.shares = deque()
        return self._epoch(self.shares)

    def __len__(self) -> int:
        return max(steps_of(len(self.batches), self._tail(), self.sharding) - self.skipped, 0)

    @property
    def pads(self) -> bool:
        """Whether the last round repeats samples; True when that cannot be known before."""
        if self.sharding.drop_last or not self.sharding.even:
            return False
        if self.sharding.batch_size is None or type(self.batches) is not BatchSampler or not _has_length(self.batches):
            return True
        return len(self.batches.sampler) % (self.sharding.part * self.sharding.size) != 0  # type: ignore[arg-type]

    def _epoch(self, shares: deque[Share]) -> Iterator[Any]:
        for index, (indices, share) in enumerate(self._parts()):
            if index >= self.skipped:
                shares.append(share)
                yield indices

    def _parts(self) -> Iterator[tuple[Any, Share]]:
        inner = getattr(self.batches, "sampler", self.batches)
        if type(self.batches) is BatchSampler and has_whole_order(inner):
            orders = shared_draws(whole_order(inner), inner, self.collectives)
            for order in orders:
                yield from shard_order(order, self.sharding)
        else:
            yield from shard(shared_draws(self.batches, inner, self.collectives), self.sharding)

    def _tail(self) -> int:
        size = self.sharding.batch_size
        if not self.sharding.split or size is None or type(self.batches) is not BatchSampler or self.batches.drop_last:
            return size or 0
        return len(self.batches.sampler) % size or size  # type: ignore[arg-type]


class ShardedItems(ShardedBatches):
    """For loaders with `batch_size=None`: each index is a batch, so indices are dealt out whole."""

    def _parts(self) -> Iterator[tuple[Any, Share]]:
        single = ([index] for index in shared_draws(self.batches, self.batches, self.collectives))
        for (index,), share in shard(single, self.sharding):
            yield index, Share(None, share.real and tuple(-1 if count else 0 for count in share.real))


def has_whole_order(sampler: Any) -> bool:
    """Whether the sampler is one whose epoch is a permutation or a range known at its start."""
    if type(sampler) is SequentialSampler:
        return True
    return (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    )


def whole_order(sampler: SequentialSampler | RandomSampler) -> Iterable[Tensor | range]:
    """The order of one epoch, drawn as the sampler itself would, but never turned into a list of all samples."""
    if isinstance(sampler, SequentialSampler):
        yield range(len(sampler.data_source))
        return
    generator = sampler.generator or torch.Generator().manual_seed(
        int(torch.empty((), dtype=torch.int64).random_().item())
    )
    yield torch.randperm(len(sampler.data_source), generator=generator)
    if sampler.generator is not None:
        # The sampler ends its epoch with a draw for a remainder of none, and the user's generator feels it.
        torch.randperm(len(sampler.data_source), generator=generator)


def _has_length(batches: Any) -> bool:
    try:
        len(batches)
    except (TypeError, NotImplementedError):
        return False
    return True
