"""Standard output that passes on whole lines: a notebook would interleave the pieces of what many processes print."""

from __future__ import annotations

import io
from typing import TextIO


class WholeLines(io.TextIOBase):
    """Keeps text until its line is complete; what is left goes out with close()."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._kept = stream, ""

    def write(self, text: str) -> int:
        complete, newline, self._kept = (self._kept + text).rpartition("\n")
        if newline:
            self._stream.write(complete + newline)
            self._stream.flush()
        return len(text)

    def close(self) -> None:
        if self._kept:
            self._stream.write(self._kept)
            self._stream.flush()
            self._kept = ""
