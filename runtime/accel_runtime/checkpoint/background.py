"""Writing while the training goes on: it waits for one copy in memory, and a thread does the rest."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from accel_runtime.checkpoint.threads import started
from accel_runtime.checkpoint.writing import Part
from accel_runtime.stopping import end_with

LOST = 1  # the exit code of a program whose last checkpoint could not be written


class Background:
    """One write at a time. Its error is raised by the next call of `settle`, or reported when the program ends."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._copies: dict[tuple[str, str], Tensor] = {}

    def settle(self) -> None:
        """Returns when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def copied(self, parts: list[Part]) -> list[Part]:
        """The parts in memory of their own, which the next save uses again: fresh pages cost more than the copy."""
        return [
            replace(part, tensors={name: self._copy(part.name, name, tensor) for name, tensor in part.tensors.items()})
            for part in parts
        ]

    def start(self, write: Callable[[], object]) -> None:
        """Not as a daemon: a program that ends waits for its checkpoint. One that is ending already writes it here."""
        if threading.main_thread().is_alive():
            self._thread = started(lambda: self._run(write))
        if self._thread is None:
            write()

    def _run(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error
            atexit.register(self._report)

    def _report(self) -> None:
        if self._error is not None:
            sys.stderr.write(f"the last checkpoint was not saved: {self._error}\n")
            atexit.unregister(self._report)
            end_with(LOST)

    def _copy(self, part: str, name: str, tensor: Tensor) -> Tensor:
        kept = self._copies.get((part, name))
        if kept is None or (kept.shape, kept.dtype) != (tensor.shape, tensor.dtype):
            pinned = tensor.device.type == "cuda"
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            self._copies[part, name] = kept
        return kept.copy_(tensor.detach())
