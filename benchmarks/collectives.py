"""What gathering results costs: one fused message against one collective for each tensor, on two CPU processes.

Each rank times the same number of calls, and the two ways take turns, so that a busy machine slows both alike.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import TCPStore

PROCESSES = 2
ROUNDS = 40
CALLS = 25
BATCH = 32


def results() -> dict[str, torch.Tensor]:
    """What an evaluation step has to tell: five tensors of three types."""
    return {
        "predictions": torch.randint(10, (BATCH,)),
        "labels": torch.randint(10, (BATCH,)),
        "logits": torch.randn(BATCH, 10),
        "losses": torch.randn(BATCH),
        "correct": torch.rand(BATCH) > 0.5,
    }


def raw(values: dict[str, torch.Tensor]) -> None:
    for value in values.values():
        dist.all_gather([torch.empty_like(value) for _ in range(PROCESSES)], value)


def seconds(call: Callable[[Any], Any], values: Any) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(CALLS):
        call(values)
    return (time.perf_counter() - start) / CALLS


def work(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(PROCESSES),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    from accel_runtime import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    values = results()
    loader = accelerator.prepare(DataLoader(range(10 * BATCH * PROCESSES), BATCH))
    for _ in loader:  # inside an iteration, as evaluations are
        timed = [(seconds(raw, values), seconds(accelerator.gather_for_metrics, values)) for _ in range(ROUNDS)]
        break
    if rank == 0:
        five, fused = (statistics.median(times) for times in zip(*timed))
        print(f"five raw collectives    {five * 1e6:8.0f} microseconds")
        print(f"gather_for_metrics      {fused * 1e6:8.0f} microseconds, {fused / five:.2f} of that (at most 0.50)")
    accelerator.end_training()


def main() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(work, args=(store.port,), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
