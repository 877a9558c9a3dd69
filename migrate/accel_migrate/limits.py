"""Limits for one file and for one piece of files, so that a strange one cannot stop a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LARGEST_FILE = 4 * 2**20  # bytes; the largest hand-written scripts are a hundredth of it
LARGEST_NOTEBOOK = 256 * 2**20  # bytes; outputs are kept inside
SECONDS_PER_FILE = 60.0
# More files than this that import each other are a library, not a script and its helpers: each is looked at alone.
LARGEST_PIECE = 300


class TimeLimitReached(BaseException):
    """Not an Exception, so that no rule that catches one of its own goes on for ever."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitReached in the body after so many seconds, where the system has an alarm clock."""
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitReached

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
