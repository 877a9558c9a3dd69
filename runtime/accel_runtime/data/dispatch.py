"""Process 0 reads for all, and sends each process its part: for streams that only one process can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from accel_runtime.collectives import Collectives
from accel_runtime.data.drawing import Check, Track, glance
from accel_runtime.data.iteration import Batch, Loader, Pairs, Share
from accel_runtime.data.rows import concatenated_rows, row_count, sliced_rows
from accel_runtime.data.sharding import Sharding, steps_of
from accel_runtime.data.source import Source, samples_of
from accel_runtime.errors import UsageError

Part = tuple[Batch, Share | None]


class Dispatched(Source):
    """Only process 0 iterates the user's loader; the others receive."""

    pads = True

    def __init__(self, loader: Loader, sharding: Sharding, collectives: Collectives, before: int = 0) -> None:
        super().__init__(loader)
        self.sharding = sharding
        self.collectives = collectives
        self.before = before

    def __iter__(self) -> Pairs:
        self.track = Track(self.loader)
        is_main = self.collectives.world.is_main
        return self._received(islice(iter(self.loader), self.before, None) if is_main else None)

    def __len__(self) -> int:
        return steps_of(max(len(self.loader) - self.before, 0), self.sharding.batch_size or 0, self.sharding)

    def rows(self) -> tuple[int, int] | None:
        samples = samples_of(self.loader)
        if samples is None:
            return None
        rounds, rest = divmod(samples, self.sharding.part * self.sharding.size)
        short = 0 if self.sharding.drops_round else -(-rest // self.sharding.size)  # as `_cut` cuts it
        return rounds * self.sharding.part + short, samples

    def beginning(self, batches: int, check: Check | None) -> Source:
        # Unchecked: a process knows its rows, and which batches they were cut from only process 0 knew.
        return Dispatched(self.loader, self.sharding, self.collectives, self.before + batches)

    def _received(self, batches: Iterator[Batch] | None) -> Pairs:
        self.track.note_first()
        rounds = self._rounds(batches) if batches is not None else None
        while True:
            part = self.collectives.scatter_objects(None if rounds is None else self._next_round(rounds))
            if isinstance(part, ReadFailure):
                raise UsageError(f"process 0 failed to read a batch for all: {part.message}")
            if part is None:
                return
            yield *part, glance(part[0])

    def _next_round(self, rounds: Iterator[list[Part]]) -> list[Any]:
        size = self.sharding.size
        try:
            return next(rounds, [None] * size)
        except Exception as error:
            # The others wait for a part: they must hear of it before this process ends.
            self.collectives.scatter_objects([ReadFailure(f"{type(error).__name__}: {error}")] * size)
            raise

    def _rounds(self, batches: Iterator[Batch]) -> Iterator[list[Part]]:
        per_round = 1 if self.sharding.split else self.sharding.size
        head: Batch | None = None
        while batch_round := list(islice(batches, per_round)):
            rows = [row_count(batch) for batch in batch_round]
            if len(batch_round) == self.sharding.size and len(set(rows)) == 1 and not self.sharding.split:
                head = head if head is not None else batch_round[0]
                yield [(batch, Share(rows[0])) for batch in batch_round]
                continue
            if self.sharding.intact:
                yield self._filled(batch_round, rows)
                continue
            if self.sharding.drop_last and len(batch_round) < per_round:
                return
            together = concatenated_rows(batch_round)
            head = head if head is not None else together
            yield self._cut(together, sum(rows), head)

    def _filled(self, batches: list[Batch], rows: list[int]) -> list[Part]:
        """Each batch as it is; a process for which none is left gets the first of them."""
        missing = self.sharding.size - len(batches)
        real = (*rows, *[0] * missing) if missing else None
        shared = [*zip(batches, rows), *[(batches[0], rows[0])] * missing]
        return [(batch, Share(count, real)) for batch, count in shared]

    def _cut(self, batch: Batch, rows: int, head: Batch) -> list[Part]:
        """Equal slices of one batch; what is missing to make them equal comes from the head of the stream."""
        size = self.sharding.size
        part = -(-rows // size)
        missing = part * size - rows
        while missing > 0:
            filler = sliced_rows(head, 0, missing)
            batch = concatenated_rows([batch, filler])
            missing -= row_count(filler)
        real = tuple(min(max(rows - rank * part, 0), part) for rank in range(size))
        share = Share(part, None if sum(real) == part * size else real)
        return [(sliced_rows(batch, rank * part, (rank + 1) * part), share) for rank in range(size)]


@dataclass(frozen=True, slots=True)
class ReadFailure:
    message: str
