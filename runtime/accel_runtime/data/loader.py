"""A prepared DataLoader: the user's own, of its own class, that feeds this process its part of the data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Iteration, Iterations
from accel_runtime.data.order import ShardedBatches, ShardedItems
from accel_runtime.data.sharding import Sharding
from accel_runtime.tree import Tree


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """What all prepared loaders of an Accelerator have in common."""

    collectives: Collectives
    iterations: Iterations
    split: bool = False
    even: bool = True
    place: Callable[[Tree], Tree] | None = None  # None: batches are already where they belong


class PreparedLoader(DataLoader[Any]):
    """Mixed into the class of the user's loader; everything else about it stays as it was."""

    _settings: LoaderSettings
    _shares: ShardedBatches | None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # Begun here and not at the first batch: plain loaders draw their seed and start their workers now.
        return self._batches(super().__iter__(), self._iteration())

    def set_epoch(self, epoch: int) -> None:
        """Hands the epoch to whatever orders the samples, as scripts do before they resume."""
        for owner in (self.batch_sampler, self.sampler, self.dataset):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
                return

    @property
    def total_batch_size(self) -> int | None:
        """The samples that all processes take at one step."""
        size, together = self.batch_size, self._settings.collectives.world.size
        return size if size is None or self._settings.split else size * together

    @property
    def total_dataset_length(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def _iteration(self) -> Iteration:
        total = None if isinstance(self.dataset, IterableDataset) else _length(self)
        return Iteration(total, pads=self._shares is not None and self._shares.pads)

    def _batches(self, source: Iterator[Any], iteration: Iteration) -> Iterator[Any]:
        stack, place = self._settings.iterations.stack, self._settings.place
        shares = self._shares.shares if self._shares is not None else None
        stack.append(iteration)
        try:
            for batch in source:
                iteration.index += 1
                iteration.is_last = iteration.index == iteration.total
                if shares is not None:
                    iteration.share = shares.popleft()
                yield batch if place is None else place(batch)
        finally:
            stack.remove(iteration)


def prepared_loader(loader: DataLoader[Any], settings: LoaderSettings) -> PreparedLoader:
    """A copy of the loader that takes this process's part; the original is left as it was."""
    clone: PreparedLoader = object.__new__(_prepared_class(type(loader)))
    # Straight into the dictionary: a DataLoader refuses to have its sampler exchanged.
    clone.__dict__.update(vars(loader), _iterator=None, _settings=settings, _shares=None)
    if settings.collectives.world.size > 1:
        _shard(clone, settings)
    return clone


def _shard(clone: PreparedLoader, settings: LoaderSettings) -> None:
    place, kind = ("batch_sampler", ShardedBatches)
    if clone.batch_sampler is None:
        # The loader does not collate: its sampler yields whole batches of indices, or indices that stand for a batch.
        place, kind = ("sampler", ShardedBatches if isinstance(clone.sampler, BatchSampler) else ShardedItems)
    batches = getattr(clone, place)
    world = settings.collectives.world
    sharding = Sharding(
        rank=world.rank,
        size=world.size,
        batch_size=getattr(batches, "batch_size", None),
        drop_last=bool(getattr(batches, "drop_last", False)),
        split=settings.split,
        even=settings.even,
    )
    sharded = kind(batches, sharding, settings.collectives)
    # In order: `sharded.shares` follows the batches one to one.
    clone.__dict__.update({place: sharded, "_shares": sharded, "in_order": True})


@functools.cache
def _prepared_class(kind: type[DataLoader[Any]]) -> type[PreparedLoader]:
    return type(kind.__name__, (PreparedLoader, kind), {"__module__": kind.__module__})


def _length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
