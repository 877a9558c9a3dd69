"""A prepared DataLoader: the user's own, that hands this process its part of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import BatchSampler, IterableDataset

from accel_runtime.collectives import Collectives
from accel_runtime.data.dispatch import Dispatched
from accel_runtime.data.feeding import Feed, Pairs
from accel_runtime.data.iteration import Iteration, Iterations
from accel_runtime.data.order import DistributedIndices, Ordered, ShardedIndices, ShardedItems
from accel_runtime.data.passage import Passage, Start, start_of
from accel_runtime.data.seedable import with_seedable_sampler
from accel_runtime.data.sharding import Sharding
from accel_runtime.data.source import Alone, Batch, Loader, Source
from accel_runtime.data.stream import Streamed
from accel_runtime.errors import ConfigError
from accel_runtime.proxy import Proxy


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """What all prepared loaders of an Accelerator have in common."""

    collectives: Collectives
    iterations: Iterations
    split: bool = False
    even: bool = True
    dispatch: bool = False
    seedable: bool = False
    seed: int | None = None
    feed: Feed | None = None  # None: batches are already where they belong


class PreparedLoader(Proxy):
    """Is the user's loader in every other respect; `source` gives this process its batches."""

    source: Source
    settings: LoaderSettings
    passage: Passage
    skipped: int

    def __init__(
        self,
        loader: Loader,
        source: Source,
        settings: LoaderSettings,
        passage: Passage | None = None,
        skipped: int = 0,
    ) -> None:
        super().__init__(loader)
        self.__dict__.update(source=source, settings=settings, passage=passage or Passage(loader), skipped=skipped)

    def __iter__(self) -> Iterator[Batch]:
        # The source is asked here and not at the first batch: plain loaders draw a seed and start workers now.
        if (resumption := self.passage.resumption) is not None:
            self.passage.resumption, self.passage.before = None, resumption.before
            pairs = resumption.pairs(self.behind, self.source, self.batches_per_round)
            return self._batches(pairs, resumption.iteration, resumption.position.start)
        start = start_of(self.behind)
        return self._batches(iter(self.source), Iteration(self.source.total, self.source.pads), start)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def total_batch_size(self) -> int | None:
        """The samples that all processes take at one step."""
        size: int | None = self.behind.batch_size
        together = self.settings.collectives.world.size
        return size if size is None or self.settings.split else size * together

    @property
    def batches_per_round(self) -> int:
        """How many batches of the script's own loader all processes use up at one step."""
        return 1 if self.settings.split else self.settings.collectives.world.size

    @property
    def total_dataset_length(self) -> int:
        return len(self.behind.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Hands the epoch to whatever orders the samples."""
        for owner in (self.behind.batch_sampler, self.behind.sampler, self.behind.dataset):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
                return

    def skipping(self, batches: int) -> PreparedLoader:
        """The same loader without its first batches."""
        return PreparedLoader(
            self.behind, self.source.skipping(batches), self.settings, self.passage, self.skipped + batches
        )

    def with_even_batches(self, even: bool) -> Source:
        """The source that this loader would have with or without filled-up rounds."""
        return _source(self.behind, replace(self.settings, even=even))

    def _batches(self, pairs: Pairs, iteration: Iteration, start: Start) -> Iterator[Batch]:
        iterations, ended = self.settings.iterations, False
        if iteration.total is None and iterations.wants_end:
            pairs = _look_ahead(pairs, iteration)
        if self.settings.feed is not None:
            pairs = self.settings.feed(pairs, self.behind)
        iteration.short = self.source.short
        iterations.stack.append(iteration)
        self.passage.enter(iteration, start, self.skipped)
        try:
            for batch, share in pairs:
                iteration.index += 1
                iteration.beside = iterations.stack[-1] is not iteration
                iteration.is_last = iteration.index == iteration.total
                iteration.share = share
                yield batch
            ended = True
        finally:
            # Also when the loop is left by break: nothing remembers it afterwards.
            iterations.stack.remove(iteration)
            self.passage.leave(iteration, ended)


def prepared_loader(loader: Loader, settings: LoaderSettings) -> PreparedLoader:
    """The loader with the source that fits its data; the original is left as it was."""
    if settings.seedable:
        loader = with_seedable_sampler(loader, settings.seed, settings.collectives)
    return PreparedLoader(loader, _source(loader, settings), settings)


def _source(loader: Loader, settings: LoaderSettings) -> Source:
    if settings.collectives.alone:
        return Alone(loader)
    if settings.dispatch:
        return Dispatched(loader, _sharding(loader, settings), settings.collectives)
    if isinstance(loader.dataset, IterableDataset):
        return Streamed(loader, _sharding(loader, settings), settings.collectives)
    return _ordered(loader, settings)


def _ordered(loader: Loader, settings: LoaderSettings) -> Source:
    # Without a batch sampler the loader does not collate: its sampler yields whole batches of indices, or single ones.
    place = "sampler" if loader.batch_sampler is None else "batch_sampler"
    batches: Any = getattr(loader, place)
    kind = ShardedIndices if place == "batch_sampler" or isinstance(batches, BatchSampler) else ShardedItems
    if _is_distributed(getattr(batches, "sampler", batches), settings.collectives.world.size):
        kind = DistributedIndices
    return Ordered(loader, kind(batches, _sharding(loader, settings, batches), settings.collectives), place)


def _is_distributed(sampler: Any, size: int) -> bool:
    replicas = getattr(sampler, "num_replicas", None)
    if replicas not in (None, size):
        raise ConfigError(
            f"the loader's {type(sampler).__name__} divides the data by {replicas} and this run has {size} processes; "
            "leave the sampler out, prepare() divides the data"
        )
    return replicas is not None


def _sharding(loader: Loader, settings: LoaderSettings, batches: Any = None) -> Sharding:
    owner = loader if batches is None else batches
    world = settings.collectives.world
    return Sharding(
        rank=world.rank,
        size=world.size,
        batch_size=getattr(owner, "batch_size", None),
        drop_last=bool(getattr(owner, "drop_last", False)),
        split=settings.split,
        even=settings.even,
    )


def _look_ahead(pairs: Pairs, iteration: Iteration) -> Pairs:
    """Reads one batch ahead, so that the total is known when the last one is handed out."""
    count = iteration.index
    for held in pairs:
        for following in pairs:
            count += 1
            yield held
            held = following
        iteration.total = count + 1
        yield held
