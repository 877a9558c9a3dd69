"""Real processes for tests: forked from this one, joined by gloo on the loopback."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch._dynamo  # which optimizers import when they are made: here once, and not in every process of every world
from torch.distributed import TCPStore

# As in the processes: what is computed here is compared with what they compute, and a fork beside threads is a risk.
torch.set_num_threads(1)

PATIENCE = 300  # seconds until a world that does not answer is a failure


def in_world(size: int, work: Callable[[], Any], patience: float = PATIENCE) -> list[Any]:
    """What `work` returns on each of `size` processes, by rank; the first failure of a process fails the test."""
    fork = multiprocessing.get_context("fork")
    processes, ends = [], []
    for rank in range(size):
        end, other = fork.Pipe()
        process = fork.Process(target=_live, args=(work, rank, size, other))
        process.start()
        other.close()
        processes.append(process)
        ends.append(end)
    # The store lives here, so that nothing can take its port from the processes; and begins after them, for a fork
    # copies the locks of its thread as they are.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    try:
        for end in ends:
            end.send(store.port)
        return _answers(ends, patience)
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.kill()
        # Now, for a failure keeps this frame, and the next world must not be forked beside the store's thread.
        del store


def gone(*known: weakref.ref[Any], patience: float = 60) -> bool:
    """Whether nothing holds on to them, in a process of a world.

    A thread of the exchange says that a tensor was sent before it lets go of it, and on a busy machine waits in between.
    """
    end = time.monotonic() + patience
    while any(one() is not None for one in known) and time.monotonic() < end:
        time.sleep(0.01)
        gc.collect()
    return all(one() is None for one in known)


def _answers(ends: list[Connection], patience: float) -> list[Any]:
    """As they come: one that failed is heard at once, though others wait for it in a collective."""
    answers: dict[int, Any] = {}
    while len(answers) < len(ends):
        waiting = {id(end): rank for rank, end in enumerate(ends) if rank not in answers}
        heard = wait([end for end in ends if id(end) in waiting], patience)
        if not heard:
            raise AssertionError(f"processes {sorted(waiting.values())} did not answer in {patience} seconds")
        for end in heard:
            answers[waiting[id(end)]] = _answer(waiting[id(end)], end)  # type: ignore[arg-type]
    return [answers[rank] for rank in range(len(ends))]


def _answer(rank: int, end: Connection) -> Any:
    try:
        succeeded, value = end.recv()
    except EOFError:
        raise AssertionError(f"process {rank} ended without an answer") from None
    if not succeeded:
        raise AssertionError(f"process {rank} failed:\n{value}")
    return value


def _live(work: Callable[[], Any], rank: int, size: int, end: Connection) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # or each full collection, as of free_memory(), would go through all that the tests have imported
    port = end.recv()
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    try:
        end.send((True, work()))
    except BaseException:
        end.send((False, traceback.format_exc()))
