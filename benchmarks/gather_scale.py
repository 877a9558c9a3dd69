"""The memory that gathering 4 bytes takes on one process, as the world grows.

A fake process group stands for the others. Its own time is that of copying one row after another, so that no time is
told here. The result has one row for each rank and grows with them; what is beside it should not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from accel_runtime.collectives import Collectives
from accel_runtime.world import World
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore

SIZES = (8, 64, 512, 4096)


def allocated(size: int) -> int:
    """All bytes that one call takes from the allocator."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    collectives = Collectives(World(0, size, 0, 8), torch.device("cpu"))
    value = torch.ones(1)
    assert len(collectives.gather(value)) == size
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        collectives.gather(value)
    dist.destroy_process_group()
    return sum(max(event.self_cpu_memory_usage, 0) for event in profiler.key_averages())


def main() -> None:
    print("ranks   bytes allocated   of these the result   the rest, in times of 8 ranks (at most 2)")
    for size in SIZES:
        memory, result = allocated(size), 4 * size
        if size == SIZES[0]:
            first = memory - result
        print(f"{size:5}   {memory:15,}   {result:19,}   {(memory - result) / first:.2f}")


if __name__ == "__main__":
    main()
