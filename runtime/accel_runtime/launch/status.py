"""One line at the foot of the terminal while ranks run: step, loss, throughput, time left, memory of each rank.

It is made from the lines that the tracker `jsonl` writes anyway and from what the system says of the processes, so a
training step pays nothing for it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from accel_runtime.launch.plan import WORKER

EVERY = 1.0  # seconds
TOTALS = (
    "total_steps",
    "max_steps",
    "num_steps",
    "num_training_steps",
    "steps",
)  # names of a run's length in its config


class Metrics:
    """What the tracker of a run has written so far; `pointer` names its file once there is one."""

    def __init__(self, pointer: Path) -> None:
        self.pointer = pointer
        self.path: Path | None = None
        self.read = 0
        self.first: Mapping[str, Any] | None = None
        self.last: Mapping[str, Any] | None = None

    def update(self) -> None:
        """Read the whole lines that are new."""
        try:
            self.path = Path(self.pointer.read_text())
            with self.path.open("rb") as file:
                # A resumed run takes lines back that it will write again.
                self.read = min(self.read, self.path.stat().st_size)
                file.seek(self.read)
                data = file.read()
        except OSError:
            return  # nothing is tracked yet, or not in a file
        whole = data[: data.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            values = json.loads(line)
            self.first, self.last = self.first or values, values

    def total(self) -> int | None:
        """How many steps the run said that it has, in what it was configured with."""
        try:
            config = json.loads(self.path.with_name("config.json").read_text()) if self.path else {}
        except (OSError, ValueError):
            return None
        return next((config[name] for name in TOTALS if isinstance(config.get(name), int)), None)


def status(
    first: Mapping[str, Any] | None,
    last: Mapping[str, Any] | None,
    total: int | None,
    elapsed: float,
    memory: Sequence[int],
) -> str:
    """The line, of what is known."""
    parts = []
    if first is not None and last is not None:
        step, begun = last.get("step"), first.get("step")
        if step is not None:
            parts.append(f"step {step}/{total}" if total else f"step {step}")
        loss = next((name for name, value in last.items() if "loss" in name and isinstance(value, float)), None)
        if loss is not None:
            parts.append(f"{loss} {last[loss]:.4g}")
        seconds = last["time"] - first["time"]
        if step is not None and begun is not None and seconds > 0 and step > begun:
            rate = (step - begun) / seconds
            parts.append(f"{rate:.3g} steps/s")
            if total and total > step:
                parts.append(f"{_clock((total - step) / rate)} left")
    parts.append(f"{_clock(elapsed)} running")
    if memory:
        parts.append(f"memory {', '.join(f'{size / 2**20:.0f}' for size in memory)} MB")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Foot:
    """The last row of a terminal, kept apart: what the ranks write scrolls above it."""

    def __init__(self, terminal: TextIO, size: Callable[[], os.terminal_size] = shutil.get_terminal_size) -> None:
        self.terminal, self.size, self.rows = terminal, size, 0

    def show(self, line: str) -> None:
        columns, rows = self.size()
        if rows != self.rows:  # at the start, or the window has another size
            self.rows = rows
            self._write(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A")
        self._write(f"\x1b7\x1b[{rows};1H\x1b[2K{line[: columns - 1]}\x1b8")

    def remove(self) -> None:
        if self.rows:
            self._write(f"\x1b7\x1b[r\x1b[{self.rows};1H\x1b[2K\x1b8")

    def _write(self, text: str) -> None:
        self.terminal.write(text)
        self.terminal.flush()


class StatusLine:
    """Shows the status while it is entered, where there is a terminal to show it on."""

    def __init__(self, pointer: Path, terminal: TextIO) -> None:
        self.wanted = terminal.isatty() and os.environ.get("TERM") != "dumb" and os.name != "nt"
        self.metrics, self.foot = Metrics(pointer), Foot(terminal)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        if self.wanted:
            self._thread.start()

    def __exit__(self, *error: object) -> None:
        if self.wanted:
            self._ended.set()
            self._thread.join()
            self.foot.remove()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._ended.wait(EVERY):
            self.metrics.update()
            m, elapsed = self.metrics, time.monotonic() - started
            self.foot.show(status(m.first, m.last, m.total(), elapsed, memory_of_ranks()))


def memory_of_ranks() -> list[int]:
    """Bytes of main memory that each rank of this machine holds, in the order in which they were started."""
    import psutil

    found = []
    for child in psutil.Process().children():
        try:
            if str(WORKER) in child.cmdline():
                found.append(child.memory_info().rss)
        except psutil.Error:
            continue  # it has just ended
    return found
