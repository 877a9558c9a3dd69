"""What one rank pays for its data as the world grows: on torch's fake process group, nothing is loaded.

A step of a rank is one batch. A stream and a batch sampler of the script's own are iterated whole by every rank, because
only iterating says what comes next and only a whole round can be dealt out anew at the end of the data; so a round of the
plain iterator, as long as the world is large, is the floor. Growth is told against that floor and a step at 8 ranks.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch.distributed as dist
from accel_runtime import Accelerator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, IterableDataset, Sampler

RANKS = (8, 64, 512, 4096)
BATCH = 4
STEPS = 20  # after the first ones, which warm up and, of a stream, are compared
SHUFFLED = 20_000_000


class Batches(Sampler[list[int]]):
    """A batch sampler of the script's own, as cheap as Python allows."""

    def __iter__(self) -> Iterator[list[int]]:
        batch = list(range(BATCH))
        for _ in range(len(self)):
            yield batch

    def __len__(self) -> int:
        return (STEPS + 8) * max(RANKS)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range((STEPS + 8) * BATCH * max(RANKS)))


KINDS: dict[str, Callable[[], DataLoader[Any]]] = {
    "batch sampler of one's own": lambda: DataLoader(range(BATCH), batch_sampler=Batches()),  # type: ignore[arg-type]
    "stream": lambda: DataLoader(Stream(), BATCH),
    "shuffle": lambda: DataLoader(range(SHUFFLED), BATCH, shuffle=True),  # type: ignore[arg-type]
}
# Of each kind that is iterated whole, a plain iterator and its items in a step of one rank.
PLAIN: dict[str, tuple[Callable[[], Iterable[Any]], int]] = {
    "batch sampler of one's own": (Batches, 1),
    "stream": (Stream, BATCH),
}


def main() -> None:
    print(f"{'a step, ms':<36}" + "".join(f"{ranks:>10,}" for ranks in RANKS) + "    growth (at most 2x, idle)")
    for name, make in KINDS.items():
        times = [step_of(make, ranks) for ranks in RANKS]
        floors = [round_of(*PLAIN[name], ranks) for ranks in RANKS] if name in PLAIN else [0.0]
        print(f"{row(name, times)}{times[-1] / (times[0] + floors[-1]):>9.1f}x")
        if name in PLAIN:
            print(row("  a round of its plain iterator", floors))
    memory()


def row(name: str, times: list[float]) -> str:
    return f"{name:<36}" + "".join(f"{1e3 * each:>10.3f}" for each in times)


def step_of(make: Callable[[], DataLoader[Any]], ranks: int) -> float:
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks))
    try:
        batches = iter(Accelerator(cpu=True).prepare(make()))
        for _ in islice(batches, 4):
            pass
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            next(batches)
            times.append(time.perf_counter() - start)
        return min(times)
    finally:
        dist.destroy_process_group()


def round_of(make: Callable[[], Iterable[Any]], items: int, ranks: int) -> float:
    """All items of one round, drawn and thrown away."""
    iterator, times = iter(make()), []
    for _ in range(STEPS):
        start = time.perf_counter()
        list(islice(iterator, items * ranks))
        times.append(time.perf_counter() - start)
    return min(times)


def memory() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"peak memory with a shuffle of {SHUFFLED:,}: {peak:.0f} MiB; a permutation is 4 bytes a sample while it is drawn"
    )


if __name__ == "__main__":
    main()
