"""Ending a run on request: a scheduler's SIGTERM or SIGUSR1 is noted, and all processes stop at the same step."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

REQUESTS = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]
EXIT_CODE = 128 + int(signal.SIGTERM)
# Names the file in which ranks tell the launcher: their exit code would look like a failure and cause a restart.
STOPPED_FILE = "ACCEL_STOPPED_FILE"
ASKED = ".asked"  # beside it, as soon as the ranks have agreed to stop


class Stopping:
    """The requests to end that this process has got. They are heard from the first `agreed` on: who never asks is
    ended by the signal, as any program is."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._told = environ.get(STOPPED_FILE)
        self._requested = False
        self._listening = False
        self._agreed = False

    def agreed(self, on_any: Callable[[bool], bool]) -> bool:
        """Whether any process was asked to end; the same answer everywhere, and once yes, yes for ever."""
        if not self._listening:
            self._listen()
        if not self._agreed and on_any(self._requested):
            self._agreed = True
            if self._told is not None:
                Path(self._told + ASKED).touch()
            atexit.register(self._leave)
        return self._agreed

    def _listen(self) -> None:
        self._listening = True
        if threading.current_thread() is threading.main_thread():
            for request in REQUESTS:
                signal.signal(request, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def _leave(self) -> None:
        """Makes an ordinary end tell that it was asked for."""
        if self._told is not None and getattr(sys, "last_value", None) is None:
            Path(self._told).touch()
            return
        atexit.unregister(self._leave)
        end_with(EXIT_CODE)


def end_with(code: int) -> None:
    """In an exit handler that is not registered any more: the exit code of this program, unless it has failed."""
    if getattr(sys, "last_value", None) is not None:
        return
    # An exit handler cannot change the exit code otherwise. Those that were registered before this one still run.
    exits: Any = atexit
    exits._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
