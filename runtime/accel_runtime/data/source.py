"""Where a prepared loader takes its batches from: the seam between a loader and the ways to shard its data."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accel_runtime.data.chance import Moment, Values
from accel_runtime.data.drawing import RECENT, Check, Followed, Given, Track, checked, glance, replayed
from accel_runtime.data.iteration import Batch as Batch
from accel_runtime.data.iteration import Loader as Loader
from accel_runtime.data.iteration import Pairs


@dataclass(frozen=True, slots=True)
class Start:
    """All that decides the order of a pass: before its iterator was made, and as its track noted it."""

    made: Moment
    values: Values
    opened: Moment | None = None
    first: Moment | None = None

    def restore(self, loader: Loader) -> None:
        self.values.restore(loader)
        self.made.restore(loader)


class Workers:
    """The iterator of a loader with `persistent_workers`, which outlives its passes."""

    def __init__(self) -> None:
        self.iterator: Any = None
        self.seed: int | None = None  # of an iterator that another run had: this run's draws no other

    def __getstate__(self) -> dict[str, Any]:
        return {"iterator": None, "seed": self.seed_in_use}

    @property
    def seed_in_use(self) -> int | None:
        return self.seed if self.iterator is None else int(self.iterator._base_seed)

    def iterated(self, loader: Loader) -> Iterator[Batch]:
        if loader.persistent_workers and self.iterator is None and self.seed is not None:
            loader.__dict__["generator"] = torch.Generator().manual_seed(self.seed)
        loader.__dict__["_iterator"] = self.iterator
        batches = iter(loader)
        if loader.persistent_workers:
            self.iterator = loader.__dict__["_iterator"]
        return batches


class Source(ABC):
    """The batches of this process. Iterating draws seeds and starts workers at once, as a plain loader does."""

    pads = False  # whether the last round repeats samples, or may
    short: tuple[int, int] | None = None  # the samples of a batch and of the last one, where a process alone has fewer
    track: Track  # of the latest pass
    # Which of the batches of a round are this process's, and how many they are; None where it gets no whole ones.
    numbers: tuple[int, int] | None = None

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.workers = Workers()

    @abstractmethod
    def __iter__(self) -> Pairs: ...

    @abstractmethod
    def __len__(self) -> int: ...

    def rows(self) -> tuple[int, int] | None:
        """The samples of this process in a pass, repeats among them, and those of the script's own loader, if known."""
        return None

    @property
    def batch_sampler(self) -> Any:
        """What stands where the loader's batch sampler stood."""
        return self.loader.batch_sampler

    @property
    def total(self) -> int | None:
        """The number of batches, where it can be relied upon: streams may lie about their length."""
        return None if isinstance(self.loader.dataset, IterableDataset) else length_of(self)

    def skipping(self, batches: int) -> Source:
        """The same batches without the first ones."""
        return Skipped(self, batches)

    @abstractmethod
    def beginning(self, batches: int, check: Check | None) -> Source:
        """Shares out the epoch without the first batches of the user's own loader."""

    def resumed(self, batches: int, start: Start) -> tuple[Pairs, deque[Any]]:
        """As iterating after `skipping` a pass that began so, and the keys of the last batches that are left out. All
        that is drawn for the order of the epoch has been drawn on return."""
        start.restore(self.loader)
        pairs = iter(self)
        self.track.opened = start.opened
        self.track.first = start.first
        if start.first is not None:
            start.first.restore(self.loader)
        left_out = deque((key for _, _, key in islice(pairs, batches)), maxlen=RECENT)
        # A stream draws its order when it is first read, so one batch is read even where none is left out.
        return (pairs if batches else chain(list(islice(pairs, 1)), pairs)), left_out


class Alone(Source):
    """One process: the loader itself."""

    numbers = (0, 1)

    def __init__(self, loader: Loader, skipped: int = 0, check: Check | None = None) -> None:
        super().__init__(loader)
        self.skipped = skipped
        self.check = check
        self.short = _short_last_batch(loader.batch_sampler)
        self.place = place_of_indices(loader)
        if self.place is not None:
            indices: Any = getattr(loader, self.place)
            self.indices = Followed(SkippedIndices(indices, skipped, check) if skipped or check else indices, loader)

    def __iter__(self) -> Pairs:
        if self.place is None:
            self.track = Track(self.loader)
            batches = checked(iter(self.loader), self.check, glance)
            return glanced(islice(batches, self.skipped, None), self.track)
        batches = self.workers.iterated(clone(self.loader, **{self.place: self.indices}, in_order=True))
        # The track is that of the iterator which was just made.
        self.track = self.indices.track
        return zip(batches, repeat(None), self.track.keys())

    def __len__(self) -> int:
        return max(len(self.loader) - self.skipped, 0)

    def skipping(self, batches: int) -> Source:
        return Alone(self.loader, self.skipped + batches, self.check)

    def beginning(self, batches: int, check: Check | None) -> Source:
        return Alone(self.loader, self.skipped + batches, check)

    def resumed(self, batches: int, start: Start) -> tuple[Pairs, deque[Any]]:
        if self.place is None or start.opened is None or start.first is None:
            return super().resumed(batches, start)
        start.restore(self.loader)
        self.track = track_of(start, self.loader)
        indices, left_out = replayed(self.indices.indices, start.opened, start.first, batches, self.loader)
        given = Given(self.track.copied(indices), self.indices)
        return zip(apart(self.loader, **{self.place: given}), repeat(None), self.track.keys()), left_out


class Skipped(Source):
    """Reads past the first batches, for data that cannot be reached by index."""

    def __init__(self, source: Source, batches: int) -> None:
        super().__init__(source.loader)
        self.source = source
        self.batches = batches
        self.pads = source.pads

    def __iter__(self) -> Pairs:
        pairs = iter(self.source)
        self.track = self.source.track
        return islice(pairs, self.batches, None)

    def __len__(self) -> int:
        return max(len(self.source) - self.batches, 0)

    def beginning(self, batches: int, check: Check | None) -> Source:
        return Skipped(self.source.beginning(batches, check), self.batches)


class SkippedIndices:
    """A batch sampler without its first batches: nothing is loaded for them."""

    def __init__(self, batches: Any, skipped: int, check: Check | None = None) -> None:
        self.batches = batches
        self.skipped = skipped
        self.check = check
        self.sampler = getattr(batches, "sampler", batches)

    def __iter__(self) -> Iterator[Any]:
        return islice(checked(iter(self.batches), self.check), self.skipped, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skipped, 0)


def place_of_indices(loader: Loader) -> str | None:
    """Where the loader's indices come from; None where there are none, or where its class iterates in its own way."""
    if isinstance(loader.dataset, IterableDataset) or type(loader).__iter__ is not DataLoader.__iter__:
        return None
    return "sampler" if loader.batch_sampler is None else "batch_sampler"


def apart(loader: Loader, **changes: Any) -> Iterator[Batch]:
    """An iterator beside the loader's own, which leaves the loader's generator alone."""
    return iter(clone(loader, **changes, in_order=True, generator=None, persistent_workers=False))


def track_of(start: Start, loader: Loader) -> Track:
    track = Track(loader)
    track.opened, track.first = start.opened, start.first
    return track


def glanced(batches: Iterator[Batch], track: Track) -> Pairs:
    track.note_first()
    for batch in batches:
        yield batch, None, glance(batch)


def clone(loader: Loader, **changes: Any) -> Loader:
    """A loader of the same class and settings with some parts exchanged; the original is left as it was."""
    twin = copy.copy(loader)
    # Straight into the dictionary: a DataLoader refuses to have its sampler exchanged.
    twin.__dict__.update(changes, _iterator=None)
    return twin


def _short_last_batch(batches: Any) -> tuple[int, int] | None:
    if type(batches) is not BatchSampler or batches.drop_last:
        return None
    size, rest = batches.batch_size, (length_of(batches.sampler) or 0) % batches.batch_size
    return (size, rest) if rest else None


def samples_of(loader: Loader) -> int | None:
    """How many samples a loader hands out in a pass; None where its length or its batch sampler does not tell."""
    batches: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if type(batches) is not BatchSampler:
        return None
    samples = length_of(loader.dataset if isinstance(loader.dataset, IterableDataset) else batches.sampler)
    return samples - samples % batches.batch_size if samples is not None and batches.drop_last else samples


def length_of(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
