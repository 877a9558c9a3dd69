"""What one rank pays for its data as the world grows: on torch's fake process group, nothing is loaded.

Beside each time stands that at 8 ranks, times how often. A step of a rank is one batch.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch.distributed as dist
from accel_runtime import Accelerator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, IterableDataset, Sampler

RANKS = (8, 64, 512, 4096)
BATCH = 4
STEPS = 8  # after the first ones, which warm up and, of a stream, are compared
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


def main() -> None:
    print(f"{'a step, ms':<28}" + "".join(f"{ranks:>10,}" for ranks in RANKS) + "    growth")
    for name, make in KINDS.items():
        times = [step_of(make, ranks) for ranks in RANKS]
        print(f"{name:<28}" + "".join(f"{1e3 * each:>10.3f}" for each in times) + f"{times[-1] / times[0]:>9.1f}x")
    own = plain()
    print(
        f"what iterating costs by itself at {max(RANKS):,} ranks: batch sampler {own[0]:.3f} ms, stream {own[1]:.3f} ms"
    )
    memory()


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
        return sorted(times)[STEPS // 2]
    finally:
        dist.destroy_process_group()


def plain() -> tuple[float, float]:
    """All batches of one round, drawn and thrown away."""
    sampler, stream = iter(Batches()), iter(Stream())
    start = time.perf_counter()
    list(islice(sampler, max(RANKS)))
    middle = time.perf_counter()
    list(islice(stream, BATCH * max(RANKS)))
    return 1e3 * (middle - start), 1e3 * (time.perf_counter() - middle)


def memory() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"peak memory with a shuffle of {SHUFFLED:,}: {peak:.0f} MiB; a permutation is 4 bytes a sample while it is drawn"
    )


if __name__ == "__main__":
    main()
