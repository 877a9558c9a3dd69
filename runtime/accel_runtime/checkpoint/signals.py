"""A script's own signal handlers wait while a checkpoint is written or loaded: they may want to save one themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handlers_postponed() -> Iterator[None]:
    """Signals that come meanwhile reach their handlers at the end. Ctrl-C still interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run on the main thread, and so never inside of this
        return
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    own = [number for number, handler in handlers.items() if callable(handler) and handler is not _interrupts]
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    for number in own:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, handlers[number])
        _deliver(came)


def _deliver(came: list[int]) -> None:
    """To each its handler, also when that of another raises."""
    if came:
        try:
            signal.raise_signal(came[0])
        finally:
            _deliver(came[1:])


_interrupts = signal.default_int_handler
