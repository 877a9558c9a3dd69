"""A file that holds Python, in the form that it is stored in: a plain script, or the cells of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from accel_migrate.outcome import Part
from accel_migrate.plan import Note
from accel_migrate.source import Source


class Document(Protocol):
    """One seam between how code is stored and the one program that is migrated."""

    @property
    def source(self) -> Source:
        """The whole program, as the rules read it."""

    @property
    def data(self) -> bytes:
        """What is on disk."""

    def rewritten(self, program: bytes) -> bytes:
        """What goes to disk when the program becomes this."""

    def place(self, line: int) -> tuple[int | None, int]:
        """The cell, if there are cells, and the line in it, of a line of the program."""

    def parts(self, program: bytes) -> Sequence[Part]:
        """The changed texts, as a person compares them."""

    def advice(self, line: int) -> Sequence[Note]:
        """What a person should know about this kind of file once it is migrated, told at that line."""


@dataclass(frozen=True)
class Script:
    """A .py file: the program is the file."""

    source: Source

    @property
    def data(self) -> bytes:
        return self.source.data

    def rewritten(self, program: bytes) -> bytes:
        return program

    def place(self, line: int) -> tuple[int | None, int]:
        return None, line

    def parts(self, program: bytes) -> Sequence[Part]:
        return (Part("", self.data, program, self.source.encoding),)

    def advice(self, line: int) -> Sequence[Note]:
        return ()


def document(path: Path, data: bytes) -> Document:
    """The document in these bytes; SourceError when they are not Python."""
    if path.suffix == ".ipynb":
        from accel_migrate.notebook import Notebook

        return Notebook.from_bytes(path, data)
    return Script(Source.from_bytes(path, data))
