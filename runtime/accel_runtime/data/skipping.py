"""Loaders that begin some batches in."""

from __future__ import annotations

from typing import Any

from accel_runtime.data.loader import PreparedLoader
from accel_runtime.data.source import Alone, Loader, Skipped
from accel_runtime.errors import UsageError


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """The loader without its first batches; nothing is read for them where data is reached by index.

    >>> for batch in skip_first_batches(loader, 100): ...
    """
    if num_batches < 0:
        raise UsageError(f"skip_first_batches cannot skip {num_batches} batches")
    if type(dataloader) is PreparedLoader:
        return dataloader.skipping(num_batches)
    return _plain(dataloader, num_batches)


def _plain(loader: Loader, batches: int) -> Any:
    skipping = Alone(loader).skipping(batches)
    return _Unpaired(skipping) if isinstance(skipping, Skipped) else skipping.loader


class _Unpaired:
    """The batches of a source that is read past, without their shares."""

    def __init__(self, source: Skipped) -> None:
        self.source = source

    def __iter__(self) -> Any:
        return (batch for batch, _ in self.source)

    def __len__(self) -> int:
        return len(self.source)
