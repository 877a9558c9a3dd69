"""What a script prints, line by line, as it goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LONGEST = 400  # characters of a line that are kept


class TeeStream:
    """A stream that somebody else reads along; it is the plain stream in every other respect."""

    def __init__(self, stream: Any, heard: Callable[[str], None]) -> None:
        self._stream = stream
        self._heard = heard
        self._begun = ""

    def write(self, text: str) -> int:
        written: int = self._stream.write(text)
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            # A bar that is drawn over and over is not a figure.
            if "\r" not in line and any(letter.isdigit() for letter in line):
                self._heard(line[:LONGEST])
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)
