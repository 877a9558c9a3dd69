"""The batches of indices of one pass: from which chance they were drawn, and which have been handed out."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, tee
from typing import Any

import torch
from torch.utils.data import IterableDataset

from accel_runtime.data.chance import Moment, moment_of
from accel_runtime.data.iteration import Loader
from accel_runtime.errors import CheckpointError
from accel_runtime.tree import leaves

RECENT = 3  # batches whose indices a checkpoint can tell
GLANCE = 16  # values of a tensor that tell batches of a stream apart


@dataclass(frozen=True, slots=True)
class Mark:
    """One batch of the script's own loader: its number in the epoch, and a digest of its key. Any number of processes
    can look whether it still comes there."""

    number: int
    digest: int


@dataclass(frozen=True, slots=True)
class Check:
    """Refuses to go on with other data than the run that saved would have had."""

    mark: Mark
    loader: str  # as it is named in the refusal

    def passed(self, batches: Iterator[Any], key: Callable[[Any], Any]) -> Iterator[Any]:
        yield from islice(batches, self.mark.number)
        batch = next(batches, None)
        if digest_of([key(batch)]) != self.mark.digest:
            raise CheckpointError(differs(self.loader))
        yield batch
        yield from batches


def checked(
    batches: Iterator[Any], check: Check | None, key: Callable[[Any], Any] = lambda batch: batch
) -> Iterator[Any]:
    """The batches of the script's own loader, from the first one of the epoch."""
    return batches if check is None else check.passed(batches, key)


class Track:
    """Written by a pass while it is under way. `opened`: before the sampler's iterator was made; `first`: before it was
    first advanced, which is where most samplers draw."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.opened: Moment | None = None
        self.first: Moment | None = None
        self.copy: Iterator[Any] = iter(())

    def __getstate__(self) -> dict[str, Any]:
        # A pass stays in the process in which it is under way.
        return {**self.__dict__, "copy": iter(())}

    def followed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of indices as they are; in C but for the first, for this runs at every step."""
        self.opened = moment_of(self.loader)
        return chain.from_iterable(self._begun(iter(batches)))

    def keys(self) -> Iterator[Any]:
        """The same batches again, to be asked for one when its data is handed out."""
        return chain.from_iterable(self._copied())

    def copied(self, batches: Iterator[Any]) -> Iterator[Any]:
        """As `followed`, for a pass whose chance is known."""
        mine, self.copy = tee(batches)
        return mine

    def note_first(self) -> None:
        """To be called before the first batch is read."""
        self.first = moment_of(self.loader)

    def _begun(self, batches: Iterator[Any]) -> Iterator[Iterator[Any]]:
        self.note_first()
        yield self.copied(batches)

    def _copied(self) -> Iterator[Iterator[Any]]:
        yield self.copy


class Followed:
    """Stands where the loader's sampler stood, and gives each pass a track."""

    def __init__(self, indices: Any, loader: Loader) -> None:
        self.indices = indices
        self.loader = loader
        self.track = Track(loader)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.indices, name)

    def __iter__(self) -> Iterator[Any]:
        self.track = Track(self.loader)
        return self.track.followed(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class Given:
    """A sampler whose one pass exists already."""

    def __init__(self, batches: Iterator[Any], indices: Any) -> None:
        self.batches = batches
        self.indices = indices

    def __iter__(self) -> Iterator[Any]:
        return self.batches

    def __len__(self) -> int:
        return len(self.indices)


def replayed(
    indices: Any, opened: Moment, first: Moment, skipped: int, loader: Loader
) -> tuple[Iterator[Any], deque[Any]]:
    """A sampler's pass drawn again from the chance that it was drawn from, without its first batches, and the last of
    these. All that the order draws at its beginning has been drawn on return."""
    opened.restore(loader)
    batches = iter(indices)
    first.restore(loader)
    left_out = deque(islice(batches, skipped), maxlen=RECENT)
    return (batches if skipped else chain(list(islice(batches, 1)), batches)), left_out


def described(loader: Loader) -> str:
    """What decides the order of its batches."""
    what = type(loader.dataset).__name__
    if isinstance(loader.dataset, IterableDataset):
        return what
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    inner = getattr(sampler, "sampler", None)
    return type(sampler).__name__ + ("" if inner is None else f"({type(inner).__name__})") + f" over {what}"


def differs(loader: str) -> str:
    return (
        f"the epoch cannot go on where the checkpoint was saved: {loader} does not give the same batches again. Make data "
        "and loader as when it was saved; a sampler or a stream whose order depends on something else needs a generator "
        "of its own, or state_dict and load_state_dict"
    )


def digest_of(keys: Iterable[Any]) -> int:
    """Of indices, or of what was seen of a stream's batches; the same in every process and every run."""
    return zlib.crc32("|".join(map(_text, keys)).encode())


def glance(batch: Any) -> Any:
    """Enough of a batch to know it again."""
    return [_glanced(leaf) for _, leaf in leaves(batch)]


def _glanced(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
        return [*leaf.shape, *leaf.detach().reshape(-1)[:GLANCE].tolist()]
    return leaf


def _text(key: Any) -> str:
    if isinstance(key, (list, tuple)):
        return f"[{','.join(map(_text, key))}]"
    if key is None or isinstance(key, (bool, int, float, str, bytes)):
        return repr(key)
    if hasattr(key, "tolist"):  # tensors and arrays
        return _text(key.tolist())
    # Other objects have no text that is sure to look alike in two processes.
    return type(key).__name__
