"""Shuffles that depend on a seed and the number of the epoch, and on nothing that was drawn before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Loader
from accel_runtime.data.source import clone


class SeedableRandomSampler(RandomSampler):
    """A RandomSampler whose epoch k is drawn with the seed `initial_seed + k`; each pass moves on to the next epoch."""

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "generator": torch.Generator()})
        self.initial_seed = torch.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self.initial_seed + self.epoch)
        self.epoch += 1
        yield from super().__iter__()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def with_seedable_sampler(loader: Loader, seed: int | None, collectives: Collectives) -> Loader:
    """The loader with its shuffle made seedable; loaders that do not shuffle stay as they are."""
    sampler = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler or type(sampler) is not RandomSampler:
        return loader
    # One seed for all: processes may have been seeded apart.
    (seed,) = collectives.broadcast_objects([torch.initial_seed() if seed is None else seed])
    seedable = SeedableRandomSampler(sampler.data_source, sampler.replacement, sampler._num_samples, data_seed=seed)
    batches = BatchSampler(seedable, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
    return clone(loader, sampler=seedable, batch_sampler=batches)
