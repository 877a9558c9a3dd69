"""A thread that says where this process stands still: which call, on which line of the script, with the stack."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile
from types import FrameType
from typing import Any

from accel_runtime.foreign import is_foreign
from accel_runtime.terminal import terminal
from accel_runtime.world import World

PATIENCE = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the script, and the function that it has called and waits for."""

    line: str
    call: str
    stack: str


class Watchdog:
    """Looks on from outside, once in a while: a step of the training does not know of it and pays nothing.

    A process stands still when neither its line in the script nor `progress` has changed for `patience` seconds.
    """

    def __init__(self, world: World, progress: Callable[[], Any], patience: float = PATIENCE) -> None:
        self._world = world
        self._progress = progress
        self._patience = patience
        self._watched = threading.main_thread().ident
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        seen: Any = None
        since, told = time.monotonic(), 0.0
        while not self._ended.wait(min(1.0, self._patience / 10)):
            place = place_of(sys._current_frames().get(self._watched or 0))
            now, still = (place and place.line, self._progress()), time.monotonic() - since
            if now != seen:
                seen, since, told = now, time.monotonic(), 0.0
            elif place is not None and still >= max(self._patience, 2 * told):
                # Ever more seldom: a long wait that is meant to be must not fill the log.
                told = still
                terminal().write(self._report(place, still))

    def _report(self, place: Place, seconds: float) -> str:
        rank, size = self._world.rank, self._world.size
        return (
            f"rank {rank} of {size} has stood at {place.line} in {place.call} for {seconds:.0f} s; if other ranks stand "
            f"elsewhere, they wait for each other\n{place.stack}"
        )


def place_of(frame: FrameType | None) -> Place | None:
    """Where the script is, seen from its innermost line; None outside of any script."""
    frames: list[FrameType] = []  # the innermost first; read once, because the thread that is looked at runs on
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    own = next((number for number, each in enumerate(frames) if not is_foreign(each.f_code.co_filename)), None)
    if own is None:
        return None
    called = frames[own - 1].f_code.co_name if own else "its own code"
    line = f"{frames[own].f_code.co_filename}:{frames[own].f_lineno}"
    outward = [each for each in reversed(frames) if not each.f_code.co_filename.startswith("<frozen")]
    steps = dropwhile(lambda each: is_foreign(each.f_code.co_filename), outward)
    stack = traceback.StackSummary.extract((each, each.f_lineno) for each in steps)
    return Place(line, called, "".join(stack.format()))
