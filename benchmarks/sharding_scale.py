"""One epoch's batch indices on one of many ranks: beyond the permutation, the cost is that of the rank's own part.

The ranks are simulated with torch's fake process group; the data is 10 million samples, of which none is loaded.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from accel_runtime import Accelerator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

SAMPLES = 10_000_000
BATCH = 32
RANKS = (16, 128, 1024)


def main() -> None:
    permutation = fastest(lambda: torch.randperm(SAMPLES))
    every_index = fastest(lambda: count(BatchSampler(RandomSampler(range(SAMPLES)), BATCH, False)), repeats=1)
    print(f"permutation of {SAMPLES:,} samples      {permutation:7.3f} s")
    print(f"all batches of a plain sampler        {every_index:7.3f} s, what a rank pays that lists them all")
    print(f"{'ranks':>6}{'batches':>9}{'prepare':>12}{'first batch':>14}{'all others':>14}{'each':>11}")
    for ranks in RANKS:
        show(ranks)


def show(ranks: int) -> None:
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks))
    accelerator = Accelerator(cpu=True)
    start = time.perf_counter()
    loader: Any = accelerator.prepare(DataLoader(range(SAMPLES), BATCH, shuffle=True))  # type: ignore[arg-type]
    prepared = time.perf_counter() - start
    epoch = iter(loader.source.indices)
    # The permutation is drawn for the first batch; what follows is this rank's own part.
    first = fastest(lambda: next(epoch), repeats=1)
    others = fastest(lambda: count(epoch), repeats=1)
    batches = len(loader)
    print(
        f"{ranks:>6}{batches:>9,}{prepared * 1e3:>9.2f} ms{first:>12.3f} s{others * 1e3:>11.2f} ms"
        f"{others / batches * 1e6:>8.2f} us"
    )
    dist.destroy_process_group()


def count(batches: Any) -> int:
    return sum(1 for _ in batches)


def fastest(call: Any, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
