"""Where a prepared loader takes its batches from: the seam between a loader and the ways to share out its data."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accel_runtime.data.iteration import Share

Loader = DataLoader[Any]
Batch = Any


class Source(ABC):
    """The batches of this process. Iterating draws seeds and starts workers at once, as a plain loader does."""

    pads = False  # whether the last round repeats samples, or may
    short: tuple[int, int] | None = None  # the samples of a batch and of the last one, where a process alone has fewer

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Batch, Share | None]]:
        """Each batch with its share in the round."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def total(self) -> int | None:
        """The number of batches, where it can be relied upon: streams may lie about their length."""
        return None if isinstance(self.loader.dataset, IterableDataset) else length_of(self)

    def skipping(self, batches: int) -> Source:
        """The same batches without the first ones."""
        return Skipped(self, batches)

    @abstractmethod
    def beginning(self, batches: int) -> Source:
        """Shares out the epoch without the first batches of the user's own loader."""

    def resumed(self, batches: int) -> Iterator[tuple[Batch, Share | None]]:
        """As iterating after `skipping`, but all that is drawn for the order of the epoch has been drawn on return."""
        pairs = iter(self)
        for _ in islice(pairs, batches):
            pass
        # A stream draws its order when it is first read, so one batch is read even where none is left out.
        return pairs if batches else chain(list(islice(pairs, 1)), pairs)


class Alone(Source):
    """One process: the loader itself."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.short = _short_last_batch(loader.batch_sampler)

    def __iter__(self) -> Iterator[tuple[Batch, Share | None]]:
        return zip(iter(self.loader), repeat(None))

    def __len__(self) -> int:
        return len(self.loader)

    def skipping(self, batches: int) -> Source:
        if self.loader.batch_sampler is None or isinstance(self.loader.dataset, IterableDataset):
            return super().skipping(batches)
        rest = Alone(clone(self.loader, batch_sampler=SkippedIndices(self.loader.batch_sampler, batches)))
        rest.short = self.short
        return rest

    def beginning(self, batches: int) -> Source:
        return self.skipping(batches)

    def resumed(self, batches: int) -> Iterator[tuple[Batch, Share | None]]:
        if self.loader.batch_sampler is None or isinstance(self.loader.dataset, IterableDataset):
            return super().resumed(batches)
        indices = Primed(SkippedIndices(self.loader.batch_sampler, batches))
        pairs = iter(Alone(clone(self.loader, batch_sampler=indices)))
        indices.prime()
        return pairs


class Skipped(Source):
    """Reads past the first batches, for data that cannot be reached by index."""

    def __init__(self, source: Source, batches: int) -> None:
        super().__init__(source.loader)
        self.source = source
        self.batches = batches
        self.pads = source.pads

    def __iter__(self) -> Iterator[tuple[Batch, Share | None]]:
        return islice(iter(self.source), self.batches, None)

    def __len__(self) -> int:
        return max(len(self.source) - self.batches, 0)

    def beginning(self, batches: int) -> Source:
        return Skipped(self.source.beginning(batches), self.batches)


class SkippedIndices:
    """A batch sampler without its first batches: nothing is loaded for them."""

    def __init__(self, batches: Any, skipped: int) -> None:
        self.batches = batches
        self.skipped = skipped
        self.sampler = getattr(batches, "sampler", batches)

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batches), self.skipped, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skipped, 0)


class Primed:
    """A batch sampler that can be made to draw before the loader asks it for its first batch."""

    def __init__(self, indices: Any) -> None:
        self.indices = indices
        self.first: list[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        self.first, self.rest = None, iter(self.indices)
        return self._batches()

    def __len__(self) -> int:
        return len(self.indices)

    def prime(self) -> None:
        if self.first is None:
            self.first = list(islice(self.rest, 1))

    def _batches(self) -> Iterator[Any]:
        self.prime()
        yield from self.first or ()
        yield from self.rest


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


def length_of(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
