"""A prepared DataLoader: the user's own, that hands this process its part of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset

from accel_runtime.collectives import Collectives
from accel_runtime.data.chance import moment_of
from accel_runtime.data.dispatch import Dispatched
from accel_runtime.data.drawing import RECENT
from accel_runtime.data.feeding import Feed
from accel_runtime.data.iteration import Batch, Iteration, Iterations, Loader, Pairs
from accel_runtime.data.order import DistributedIndices, Ordered, ShardedIndices, ShardedItems
from accel_runtime.data.progress import LoaderProgress, Pass, Position
from accel_runtime.data.resumption import Replay, Resuming, Resumption
from accel_runtime.data.seedable import with_seedable_sampler
from accel_runtime.data.sharding import Sharding
from accel_runtime.data.source import Alone, Source, length_of
from accel_runtime.data.stream import Streamed
from accel_runtime.errors import CheckpointError, ConfigError, UsageError
from accel_runtime.proxy import Proxy
from accel_runtime.tree import place


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """What all prepared loaders of an Accelerator have in common."""

    collectives: Collectives
    iterations: Iterations
    split: bool = False
    even: bool = True
    intact: bool = False  # whether every batch goes to one process as it is, for figures of a batch
    dispatch: bool = False
    seedable: bool = False
    seed: int | None = None
    stateful: bool = False  # whether loading a state makes loaders go on in the middle of an epoch
    feed: Feed | None = None  # None: batches are already where they belong


class PreparedLoader(Proxy):
    """Is the user's loader in every other respect; `source` gives this process its batches."""

    _is_accelerate_prepared = True
    source: Source
    settings: LoaderSettings
    loader_progress: LoaderProgress
    skipped: int
    whole: Source  # without what is skipped

    def __init__(
        self,
        loader: Loader,
        source: Source,
        settings: LoaderSettings,
        progress: LoaderProgress | None = None,
        skipped: int = 0,
        whole: Source | None = None,
    ) -> None:
        super().__init__(loader)
        self.__dict__.update(
            source=source,
            settings=settings,
            loader_progress=progress or LoaderProgress(loader, settings.iterations),
            skipped=skipped,
            whole=source if whole is None else whole,
        )

    def __iter__(self) -> Iterator[Batch]:
        # The source is asked here and not at the first batch: plain loaders draw a seed and start workers now.
        progress, resumption = self.loader_progress, self.loader_progress.resumption
        progress.resumption = None
        if resumption is not None and resumption.begins_anew(self.skipped, length_of(self.whole) is not None):
            for _ in self._resumed(resumption, at_end=True):
                pass  # nothing is left of that pass, but what its end draws is drawn
        elif resumption is not None:
            return self._resumed(resumption)
        if progress.resuming is not None:
            progress.resuming.leave_random()
        made, values = moment_of(self.behind), progress.watch.values()
        pairs = iter(self.source)
        return self._batches(
            pairs, Pass(progress.iteration_of(self.source), made, values, self.source.track, self.skipped)
        )

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
    def batches_seen(self) -> int:
        """How many batches of the script's own loader all processes have had in this pass, or in the last one."""
        return (self.loader_progress.iteration or self.loader_progress.last).batches

    @property
    def sample_share(self) -> float:
        """This process's samples of a whole pass, with those that fill its last round, by all of the data; 1 on one process.

        A sum over the samples that this process had, by `len(loader.dataset) * loader.sample_share`, is a mean as on one.
        """
        if self.settings.collectives.alone:
            return 1
        own, samples = self.whole.rows() or (0, 0)
        if own and samples:
            return own / samples
        return self.batch_share / (self.settings.collectives.world.size // self.batches_per_round)

    @property
    def batch_share(self) -> float:
        """The same of its batches, for a sum over batch means."""
        own, batches = length_of(self.whole), length_of(self.behind)
        dealt = isinstance(self.whole, Ordered) and isinstance(self.whole.indices, DistributedIndices)
        # A sampler that deals out samples makes the loader's own length one of this process.
        return own / batches if own and batches and not dealt else 1 / self.batches_per_round

    @property
    def batch_sampler(self) -> Any:
        """The loader's own; on many processes with the batches of this one, and its own as `batch_sampler`."""
        return self.source.batch_sampler

    @property
    def total_dataset_length(self) -> int:
        return len(self.behind.dataset)

    @property
    def base_dataloader(self) -> Loader:
        """The loader as it was given to prepare."""
        return self.behind  # type: ignore[no-any-return]

    @property
    def use_stateful_dataloader(self) -> bool:
        return self.settings.stateful

    @property
    def iteration(self) -> int:
        """The number of the epoch: how many passes have ended, or what `set_epoch` said."""
        return self.loader_progress.epoch

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the pass under way has handed out its last batch."""
        under_way = self.loader_progress.iteration
        return under_way is not None and under_way.is_last

    @property
    def remainder(self) -> int:
        """The samples of the last, short round; 0 where it is full, -1 where that is not known."""
        samples, together = length_of(self.behind.dataset), self.total_batch_size
        return -1 if samples is None or together is None or self.behind.drop_last else samples % together

    def set_epoch(self, epoch: int) -> None:
        """Hands the epoch to whatever orders the samples."""
        self.loader_progress.epoch = epoch
        for owner in (self.behind.batch_sampler, self.behind.sampler, self.behind.dataset):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
                return

    def skipping(self, batches: int) -> PreparedLoader:
        """The same loader without its first batches."""
        skipped = self.skipped + batches
        loader = type(self)(
            self.behind, self.source.skipping(batches), self.settings, self.loader_progress, skipped, self.whole
        )
        loader.__dict__["prepared"] = self  # whoever holds this one holds that: they have their place in common
        return loader

    def position(self) -> Position:
        """Where this loader stands."""
        position = self.loader_progress.position()
        mark = self.loader_progress.mark(position, self.whole.numbers)
        return replace(position, workers_seed=self.whole.workers.seed_in_use, mark=mark)

    def resume(self, position: Position, resuming: Resuming) -> None:
        """Makes the next pass one that another run began, or the one that would have followed."""
        progress = self.loader_progress
        progress.passes, progress.steps, progress.trains = position.passes, position.steps, position.trains
        progress.epoch, progress.current, progress.cut = position.passes, None, None
        progress.resumption, progress.resuming = None, resuming
        self.whole.workers.seed = position.workers_seed
        if not position.under_way:
            position.start.restore(self.behind)
            return
        if not resuming.same_world and (position.before or position.rounds) and not position.ended:
            self._check_workers()
        then = 1 if self.settings.split else resuming.processes
        progress.resumption = Resumption(self.behind, position, resuming, self.batches_per_round, then, Iteration(None))

    def _check_workers(self) -> None:
        """Each process of another number reads on in a stream where the last one stopped: of several readers none did."""
        if (
            isinstance(self.behind.dataset, IterableDataset)
            and self.behind.num_workers > 1
            and not self.settings.dispatch
        ):
            raise CheckpointError(
                f"{type(self.behind.dataset).__name__} is read by {self.behind.num_workers} workers, each of which has its own "
                "part of it, so an epoch that is under way cannot go on with another number of processes; load it on as "
                "many as have saved it, save between two epochs, or use at most one worker or dispatch_batches=True"
            )

    def whole_batches(self) -> PreparedLoader:
        """The same loader with each batch as it is and on one process, whatever the settings make of batches."""
        if self.settings.collectives.alone or self.settings.intact:
            return self
        if isinstance(self.source, Ordered) and isinstance(self.source.indices, DistributedIndices):
            raise UsageError(
                f"the loader's {type(self.source.indices.sampler).__name__} deals out samples, so its batches are not those "
                "of one process; leave the sampler out, prepare() divides the data"
            )
        if "intact" not in self.__dict__:
            settings = replace(self.settings, split=False, even=True, intact=True)
            whole = type(self)(self.behind, _source(self.behind, settings), settings, self.loader_progress)
            whole.__dict__["prepared"] = self  # as in `skipping`
            self.__dict__["intact"] = whole.skipping(self.skipped) if self.skipped else whole
        return self.__dict__["intact"]  # type: ignore[no-any-return]

    def with_even_batches(self, even: bool) -> Source:
        """The source that this loader would have with or without filled-up rounds."""
        return _source(self.behind, replace(self.settings, even=even))

    def _resumed(self, resumption: Resumption, at_end: bool = False) -> Iterator[Batch]:
        """A pass that another run began."""
        source, iterations = self.whole if self.skipped else self.source, self.settings.iterations
        goes_on = at_end or resumption.goes_on(self.skipped)
        pairs, source = resumption.pairs(source, self.skipped, goes_on)
        here, start = resumption.here(), resumption.position.start
        before, done = (here.before, here.done) if goes_on else (0, 0)
        trained = resumption.position.trains
        begun = Pass(resumption.iteration, start.made, start.values, source.track, 0, before, done, trained)
        return self._batches(pairs, begun, Replay(resumption, goes_on, iterations))

    def _batches(self, pairs: Pairs, begun: Pass, replay: Replay | None = None) -> Iterator[Batch]:
        iterations, iteration, ended = self.settings.iterations, begun.iteration, False
        state_of_torch = torch.default_generator.get_state
        if iteration.total is None and iterations.wants_end:
            pairs = _look_ahead(pairs, iteration)
        if self.settings.feed is not None:
            pairs = self.settings.feed(pairs, self.behind)
        if replay is not None:
            pairs = replay.followed(pairs, self._placed)
        iteration.short, iteration.loader = self.source.short, self
        iterations.stack.append(iteration)
        self.loader_progress.enter(begun)
        per_round, in_parts = self.batches_per_round, self.settings.split
        try:
            for batch, share, key in pairs:
                iteration.index += 1
                iteration.beside = iterations.stack[-1] is not iteration
                iteration.is_last = iteration.index == iteration.total
                iteration.share, iteration.batch = share, batch
                # A batch that only keeps a process busy is not one of the script's.
                real = None if share is None or in_parts else share.real
                iteration.batches += per_round if real is None else sum(map(bool, real))
                iteration.recent = (*iteration.recent[-RECENT + 1 :], key)
                iterations.drawn = state_of_torch()
                if iterations.counter is not None:
                    iterations.counted = iterations.counter._version
                iteration.work = iterations.work
                yield batch
                if (work := iterations.work - iteration.work) == 0:
                    iteration.passed_over = True
                    iteration.ahead = -1 if iteration.trained else iteration.ahead + 1
                    continue
                if work != iteration.usual:
                    iteration.usual = -1 if iteration.worked else work
                iteration.worked = iterations.fed = True
                iteration.trained += 1
            ended = True
        finally:
            # Also when the loop is left by break: nothing remembers it afterwards.
            iterations.stack.remove(iteration)
            iterations.ended(iteration)
            iteration.loader = None
            self.loader_progress.leave(iteration, ended)

    def _placed(self, batch: Batch) -> Batch:
        return batch if self.settings.feed is None else place(batch, self.settings.feed.device)


class EvaluatedLoader(PreparedLoader):
    """One whose batches cannot be split. Evaluations are right by whole batches too; training would take larger steps."""

    def __iter__(self) -> Iterator[Batch]:
        if torch.is_grad_enabled() and not self.settings.intact:
            _sharding(self.behind, replace(self.settings, split=True), self.behind.batch_sampler)  # which says why not
        return super().__iter__()


def prepared_loader(loader: Loader, settings: LoaderSettings) -> PreparedLoader:
    """The loader with the source that fits its data; the original is left as it was."""
    from accel_runtime.data.stateful import StatefulLoader  # which is a PreparedLoader

    if settings.seedable:
        loader = with_seedable_sampler(loader, settings.seed, settings.collectives)
    kind = StatefulLoader if settings.stateful else PreparedLoader
    try:
        return kind(loader, _source(loader, settings), settings)
    except ConfigError:
        if not settings.split or settings.stateful:
            raise
    undivided = replace(settings, split=False)
    return EvaluatedLoader(loader, _source(loader, undivided), undivided)


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
        intact=settings.intact,
    )


def _look_ahead(pairs: Pairs, iteration: Iteration) -> Pairs:
    """Reads one batch ahead, so that the total is known when the last one is handed out."""
    count = iteration.index  # those that were kept have been handed out when this begins
    for held in pairs:
        for following in pairs:
            count += 1
            yield held
            held = following
        iteration.total = count + 1
        yield held
