"""Loaders that begin some batches in."""

from __future__ import annotations

from itertools import islice
from typing import Any

from accel_runtime.data.iteration import Loader
from accel_runtime.data.loader import PreparedLoader
from accel_runtime.data.source import SkippedIndices, clone, place_of_indices
from accel_runtime.errors import UsageError


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """The loader without its first batches; nothing is read for them where data is reached by index.

    >>> for batch in skip_first_batches(loader, 100): ...
    """
    if num_batches < 0:
        raise UsageError(f"skip_first_batches cannot skip {num_batches} batches")
    if issubclass(type(dataloader), PreparedLoader):
        return dataloader.skipping(num_batches)
    return _plain(dataloader, num_batches)


def _plain(loader: Loader, batches: int) -> Any:
    place = place_of_indices(loader)
    if place is None:
        return ReadPast(loader, batches)
    return clone(loader, **{place: SkippedIndices(getattr(loader, place), batches)})


class ReadPast:
    """The batches of a loader whose first ones are read for nothing."""

    def __init__(self, loader: Loader, batches: int) -> None:
        self.loader = loader
        self.batches = batches

    def __iter__(self) -> Any:
        return islice(iter(self.loader), self.batches, None)

    def __len__(self) -> int:
        return max(len(self.loader) - self.batches, 0)
