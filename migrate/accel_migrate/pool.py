"""Spreads tasks over processes and hands the results back in order; a worker that dies costs one task, not the run."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import parent_process
from typing import TypeVar

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

# Tasks that wait per process: enough to keep it busy, few enough that memory does not grow with the run.
AHEAD = 16


def spread(
    work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], jobs: int, lost: Callable[[TaskT], ResultT]
) -> Iterator[ResultT]:
    """The result of each task, in order. `lost` answers for a task whose process died."""
    if jobs == 1:
        yield from map(work, tasks)
        return
    queue = iter(tasks)
    while waiting := deque(islice(queue, AHEAD * jobs)):
        suspects = yield from _until_broken(work, waiting, queue, jobs)
        for task in suspects:
            yield _alone(work, task, lost)


def _until_broken(
    work: Callable[[TaskT], ResultT], waiting: deque[TaskT], queue: Iterator[TaskT], jobs: int
) -> Generator[ResultT, None, list[TaskT]]:
    """Work off the queue; the value of the generator is what was under way when a process died."""
    pool = ProcessPoolExecutor(jobs, initializer=_follow_the_parent)
    try:
        running = deque((task, _submitted(pool, work, task)) for task in waiting)
        while running:
            try:
                result = running[0][1].result()
            except BrokenProcessPool:
                return [task for task, _ in running]
            running.popleft()
            running.extend((task, _submitted(pool, work, task)) for task in islice(queue, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
    return []


def _follow_the_parent() -> None:
    """Ctrl-C reaches every process of the terminal, and one line about it is enough; no worker outlives who reads its results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _submitted(pool: ProcessPoolExecutor, work: Callable[[TaskT], ResultT], task: TaskT) -> Future[ResultT]:
    """The task under way; in a broken pool it fails like those before it, so that no task is lost."""
    try:
        return pool.submit(work, task)
    except BrokenProcessPool as error:
        future: Future[ResultT] = Future()
        future.set_exception(error)
        return future


def _alone(work: Callable[[TaskT], ResultT], task: TaskT, lost: Callable[[TaskT], ResultT]) -> ResultT:
    with ProcessPoolExecutor(1, initializer=_follow_the_parent) as pool:
        try:
            return pool.submit(work, task).result()
        except BrokenProcessPool:
            return lost(task)
