"""Plain threads: those of an executor refuse work as soon as the program begins to end, and a checkpoint is then lost."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BEHIND = 1 << 28  # bytes that may wait for their digest; those of a device are copies, and take memory


def started(work: Callable[[], None]) -> threading.Thread | None:
    """The thread that does the work, or None when the interpreter starts no more of them."""
    # Not what it would be by itself in a daemon thread: the program waits for it.
    thread = threading.Thread(target=work, name="checkpoint", daemon=False)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What the work gives for each item, done on all cores; the first failure is raised."""
    waiting = deque(enumerate(items))
    results: list[Any] = [None] * len(waiting)
    failures: list[BaseException] = []

    def take() -> None:
        while not failures:
            try:
                index, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = work(item)
            except BaseException as failure:
                failures.append(failure)

    others = [started(take) for _ in range(min(os.cpu_count() or 1, len(results)) - 1)]
    take()
    for thread in others:
        if thread is not None:
            thread.join()
    if failures:
        raise failures[0]
    return results


class DigestBeside:
    """A SHA-256 that a thread computes while the disk is waited for, so that it costs no time of its own."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._pieces: SimpleQueue[memoryview | None] = SimpleQueue()
        self._behind = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = started(self._work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()

    def update(self, piece: memoryview) -> None:
        if self._thread is None:
            self._digest.update(piece)
            return
        with self._changed:
            self._changed.wait_for(lambda: self._behind <= BEHIND)
            self._behind += len(piece)
        self._pieces.put(piece)

    def hexdigest(self) -> str:
        """Of all pieces; to be asked after the end of the `with`."""
        return self._digest.hexdigest()

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._digest.update(piece)
            with self._changed:
                self._behind -= len(piece)
                self._changed.notify()
