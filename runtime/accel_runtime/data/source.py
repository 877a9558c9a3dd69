"""Where a prepared loader takes its batches from: the seam between a loader and the ways to share out its data."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from accel_runtime.data.iteration import Share

Loader = DataLoader[Any]
Batch = Any


class Source(ABC):
    """The batches of this process. Iterating draws seeds and starts workers at once, as a plain loader does."""

    pads = False  # whether the last round repeats samples, or may

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


class Alone(Source):
    """One process: the loader itself."""

    def __iter__(self) -> Iterator[tuple[Batch, Share | None]]:
        return zip(iter(self.loader), repeat(None))

    def __len__(self) -> int:
        return len(self.loader)

    def skipping(self, batches: int) -> Source:
        if self.loader.batch_sampler is None or isinstance(self.loader.dataset, IterableDataset):
            return super().skipping(batches)
        return Alone(clone(self.loader, batch_sampler=SkippedIndices(self.loader.batch_sampler, batches)))


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


class SkippedIndices:
    """A batch sampler without its first batches: nothing is loaded for them."""

    def __init__(self, batches: Any, skipped: int) -> None:
        self.batches = batches
        self.skipped = skipped

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batches), self.skipped, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skipped, 0)


def clone(loader: Loader, **changes: Any) -> Loader:
    """A loader of the same class and settings with some parts exchanged; the original is left as it was."""
    twin = copy.copy(loader)
    # Straight into the dictionary: a DataLoader refuses to have its sampler exchanged.
    twin.__dict__.update(changes, _iterator=None)
    return twin


def length_of(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
