"""Data that can only be read from the front: every process reads the whole stream and keeps its part."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch

from accel_runtime.collectives import Collectives
from accel_runtime.data.drawing import Check, Track, checked, glance
from accel_runtime.data.iteration import Batch, Loader, Pairs, Share
from accel_runtime.data.sharding import Sharding, rows_of, shard, shard_samples, steps_of
from accel_runtime.data.source import Source, clone, samples_of
from accel_runtime.errors import UsageError
from accel_runtime.proxy import Proxy
from accel_runtime.tree import leaves

CHECKED_ROUNDS = 3  # at the start of each epoch; streams in different orders differ at once
GLANCED = 16  # samples at each end of a round
ENDED = -1


class Streamed(Source):
    """The user's loader over a stream that is cut into batches, and sharded, before it is collated."""

    def __init__(
        self,
        loader: Loader,
        sharding: Sharding,
        collectives: Collectives,
        before: int = 0,
        check: Check | None = None,
    ) -> None:
        super().__init__(loader)
        self.sharding = sharding
        self.collectives = collectives
        self.before = before
        self.numbers = sharding.numbers
        self.pads = sharding.even and not sharding.drops_round
        # Without a batch sampler the loader takes the stream's items as they come: our stream yields whole batches.
        self.local = clone(
            loader,
            dataset=ShardedStream(loader.dataset, sharding, before, check, loader.collate_fn),
            batch_sampler=None,
            collate_fn=CollatePart(loader.collate_fn),
            in_order=True,
        )

    def __iter__(self) -> Pairs:
        self.track = Track(self.loader)
        return self._checked(iter(self.local))

    def __len__(self) -> int:
        size = self.sharding.batch_size or 1
        full, tail = divmod(len(self.loader.dataset), size)  # type: ignore[arg-type]
        if tail and not self.sharding.drop_last:
            return steps_of(max(full + 1 - self.before, 0), tail, self.sharding)
        return steps_of(max(full - self.before, 0), size, self.sharding)

    def rows(self) -> tuple[int, int] | None:
        samples = samples_of(self.loader)
        return None if samples is None else (rows_of(samples, self.sharding), samples)

    def beginning(self, batches: int, check: Check | None) -> Source:
        return Streamed(self.loader, self.sharding, self.collectives, self.before + batches, check)

    def _checked(self, parts: Iterator[Any]) -> Pairs:
        self.track.note_first()
        for _ in range(CHECKED_ROUNDS):
            part = next(parts, None)
            self._compare(ENDED if part is None else part[2])
            if part is None:
                return
            yield part[0], part[1], glance(part[0])
        for batch, share, _ in parts:
            yield batch, share, glance(batch)

    def _compare(self, digest: int) -> None:
        digests = self.collectives.gather_numbers(digest)
        if len(set(digests)) > 1:
            odd = next(rank for rank, other in enumerate(digests) if other != digests[0])
            raise UsageError(
                f"the stream of {type(self.loader.dataset).__name__} differs between process 0 and process {odd}, so "
                "samples would be lost or repeated; seed it alike on all processes, or let process 0 read for all "
                "with DataLoaderConfiguration(dispatch_batches=True). If each process already reads its own part, "
                "do not prepare this loader"
            )


class ShardedStream(Proxy):
    """Is the user's dataset in every other respect, so that a worker_init_fn may set it up."""

    sharding: Sharding
    before: int  # batches that are left out
    check: Check | None
    collate: Callable[[Any], Any]

    def __init__(
        self,
        dataset: Any,
        sharding: Sharding,
        before: int,
        check: Check | None,
        collate: Callable[[Any], Any],
    ) -> None:
        super().__init__(dataset)
        self.__dict__.update(sharding=sharding, before=before, check=check, collate=collate)

    def __iter__(self) -> Iterator[Part]:
        size = self.sharding.batch_size
        samples = islice(self._checked(iter(self.behind), size), self.before * (size or 1), None)
        dealt = shard_samples(samples, self.sharding) if size else shard_items(samples, self.sharding)
        for number, (mine, share, whole) in enumerate(dealt):
            digest = _digest_of_round(whole) if number < CHECKED_ROUNDS else 0
            yield Part(mine if size else mine[0], share if size else share.of_items(), digest)

    def _checked(self, samples: Iterator[Any], size: int | None) -> Iterator[Any]:
        if self.check is None or size is None:
            return checked(samples, self.check, self._key)
        batches = iter(lambda: list(islice(samples, size)), [])
        return chain.from_iterable(checked(batches, self.check, self._key))

    def _key(self, batch: Any) -> Any:
        return None if batch is None else glance(self.collate(batch))


@dataclass(frozen=True, slots=True)
class Part:
    samples: Any
    share: Share
    digest: int  # of the whole round, so that all processes have the same


@dataclass(frozen=True, slots=True)
class CollatePart:
    """The user's collation, with what belongs to the batch carried beside it through workers and pinning."""

    collate: Callable[[Any], Any]

    def __call__(self, part: Part) -> tuple[Batch, Share, int]:
        return self.collate(part.samples), part.share, part.digest


def shard_items(items: Iterable[Any], sharding: Sharding) -> Iterator[tuple[list[Any], Share, list[Any]]]:
    """For streams that yield whole batches."""
    dealt: list[list[Any]] = []

    def rounds() -> Iterator[list[Any]]:
        stream = iter(items)
        while current := list(islice(stream, sharding.size)):
            dealt.append(current)
            yield from ([item] for item in current)

    for mine, share in shard(rounds(), sharding):
        yield mine, share, dealt.pop(0)


def _digest_of_round(samples: list[Any]) -> int:
    """Of the ends: streams in different orders differ there, and a round has as many samples as there are processes."""
    return _digest([len(samples), samples[:GLANCED], samples[-GLANCED:]])


def _digest(samples: Any) -> int:
    digest = 0
    for path, leaf in leaves(samples):
        digest = zlib.crc32(path.encode() + _content(leaf), digest)
    return digest


def _content(leaf: Any) -> bytes:
    if isinstance(leaf, torch.Tensor):
        return bytes(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    if isinstance(leaf, (str, bytes, int, float)):
        return repr(leaf).encode()
    if hasattr(leaf, "tobytes"):
        return bytes(leaf.tobytes())
    # Other objects have no content that is sure to look alike in two processes.
    return type(leaf).__name__.encode()
