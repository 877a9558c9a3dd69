"""What one process did, one line of JSON for each event, on disk as soon as it happened."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

# Gives weights without a part in a loss their gradients of zero, by backward passes of its own.
FILLS_UP = "accel_runtime.strategies.ddp_unused"
NEAR = 12  # frames
PATIENCE = 20.0  # seconds that a process which has its steps waits for those that still need it


class Journal:
    """Written from the first event that comes out of the project's own code: helpers of a launcher leave no trace."""

    def __init__(self, folder: Path, copy: Path, world: int, rank: int) -> None:
        self.folder = folder
        self.copy = copy.resolve()
        self.world = world
        self.rank = rank
        self.process = os.getpid()
        self.stream: TextIO | None = None
        self.files: dict[str, str | None] = {}

    def note(self, kind: str, direct: bool = False, **facts: Any) -> None:
        """One event. With `direct`, only when the project's code asked for it, not a library on its behalf."""
        if os.getpid() != self.process:
            return  # a worker of a loader: it was forked from this process, and trains nothing
        place = self.place(direct)
        if place is not None:
            self._write({"kind": kind, "file": place[0], "line": place[1], **facts})

    def place(self, direct: bool = False) -> tuple[str, int] | None:
        """The line of the project that is being run."""
        for frame in callers():
            name = frame.f_code.co_filename
            if name not in self.files:
                self.files[name] = self._in_copy(name)
            file = self.files[name]
            if file is not None:
                return file, frame.f_lineno
            if direct and f"{os.sep}accel_" in name and f"{os.sep}recorder{os.sep}" not in name:
                return None
        return None

    def _in_copy(self, name: str) -> str | None:
        path = Path(name).resolve()
        return path.relative_to(self.copy).as_posix() if path.is_relative_to(self.copy) else None

    def _write(self, event: dict[str, Any]) -> None:
        if self.stream is None:
            self.stream = (self.folder / f"{self.rank}-{self.process}.jsonl").open("a", encoding="utf-8")
        self.stream.write(json.dumps(event) + "\n")
        self.stream.flush()

    def close(self, **facts: Any) -> None:
        """The last line; a journal without it is of a process that died."""
        if os.getpid() == self.process and self.stream is not None:
            self._write({"kind": "end", "file": "", "line": 0, "ran": self._ran(), **facts})
            self.stream.close()
            self.stream = None

    def _ran(self) -> list[str]:
        """The files of the project that were run: those that events came from, and those that are loaded."""
        names = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        loaded = {self._in_copy(name) for name in names if name and Path(name).is_file()}  # torch.ops has no file
        return sorted(file for file in loaded | {*self.files.values()} if file is not None)

    def leave(self, **facts: Any) -> None:
        """End the process here and now, whatever the script would catch, once the others have their steps too."""
        self.close(**facts)
        sys.stdout.flush()
        sys.stderr.flush()
        (self.folder / f"{self.rank}.done").touch()
        deadline = time.monotonic() + PATIENCE
        while len(list(self.folder.glob("*.done"))) < self.world and time.monotonic() < deadline:
            time.sleep(0.02)
        os._exit(0)


def callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def fills_up() -> bool:
    """Whether the runtime completes an exchange of gradients: nothing of that is the script's own computation."""
    return any(frame.f_globals.get("__name__") == FILLS_UP for frame in islice(callers(), NEAR))
