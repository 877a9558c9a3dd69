"""A Jupyter notebook as one program: names flow from cell to cell, and only changed cells change in the file."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_migrate.errors import SourceError
from accel_migrate.magics import is_python, mask, unmask
from accel_migrate.outcome import Part
from accel_migrate.plan import Note
from accel_migrate.source import Source

MARKER = re.compile(r"^# %%accel:cell (\d+)\n", re.MULTILINE)
LAUNCHER = "AM911"
BLANK = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of Python code; its `source` is the text of the file from `start` to `end`."""

    number: int  # from 1, over all cells, as a reader counts them
    start: int
    end: int
    code: str
    first: int = 1  # line of its first line when all code cells are joined, as a converter to a script does


@dataclass(frozen=True)
class Notebook:
    """A .ipynb file: the program is its Python cells, joined, with magics masked."""

    data: bytes
    text: str
    cells: tuple[Cell, ...]
    hidden: tuple[str, ...]  # what the masks stand for
    source: Source

    @classmethod
    def from_bytes(cls, path: Path, data: bytes) -> Notebook:
        try:
            text = data.decode("utf-8")
            cells = tuple(_code_cells(text))
        except UnicodeDecodeError as error:
            raise SourceError("is not a notebook: it is not UTF-8") from error
        except json.JSONDecodeError as error:
            raise SourceError(f"is not a notebook: {error.msg}", error.lineno) from error
        hidden: list[str] = []
        program = "".join(f"# %%accel:cell {cell.number}\n{mask(cell.code, hidden)}\n" for cell in cells)
        return cls(data, text, cells, tuple(hidden), Source.from_bytes(path, program.encode()))

    def rewritten(self, program: bytes) -> bytes:
        pieces, position = [], 0
        for cell, code in self._changed(program):
            pieces += [self.text[position : cell.start], _encoded(self.text[cell.start : cell.end], code)]
            position = cell.end
        return "".join([*pieces, self.text[position:]]).encode()

    def place(self, line: int) -> tuple[int | None, int]:
        starts = [self.source.line_of(match.start()) for match in MARKER.finditer(self.source.text)]
        index = bisect_right(starts, line) - 1
        # The marker itself stands for the first line of its cell.
        return self.cells[index].number, max(line - starts[index], 1)

    def line_over_cells(self, cell: int, line: int) -> int:
        """A line of a cell, counted over all code cells."""
        return next(each.first for each in self.cells if each.number == cell) + line - 1

    def parts(self, program: bytes) -> Sequence[Part]:
        return [
            Part(f"cell {cell.number}", _with_newline(cell.code).encode(), _with_newline(code).encode())
            for cell, code in self._changed(program)
        ]

    def advice(self, line: int) -> Sequence[Note]:
        message = (
            "to train on several processes from this notebook, put the training into a function and start it with "
            "notebook_launcher(function, num_processes=N)"
        )
        return (Note(LAUNCHER, line, 1, message),)

    def _changed(self, program: bytes) -> Iterator[tuple[Cell, str]]:
        """The cells whose code differs in the rewritten program, with their new code."""
        before_first, *rest = MARKER.split(program.decode())
        numbers, codes = [int(number) for number in rest[::2]], rest[1::2]
        if numbers != [cell.number for cell in self.cells]:
            raise SourceError(f"lost the border of a cell in the rewrite: {numbers}")
        codes[:1] = [before_first + code for code in codes[:1]]
        for cell, masked in zip(self.cells, codes, strict=True):
            code = unmask(masked.removesuffix("\n"), self.hidden)
            if code != cell.code:
                yield cell, code


def _code_cells(text: str) -> Iterator[Cell]:
    """The Python cells, with the places of their sources in the text."""
    notebook = {key: (start, end) for key, start, end in _members(text, _skip(text, 0))}
    if "cells" not in notebook:
        raise SourceError("is not a notebook of format 4: it has no cells; open and save it in Jupyter")
    if "metadata" in notebook and not _speaks_python(DECODER.raw_decode(text, notebook["metadata"][0])[0]):
        return
    line = 1
    for number, (start, _) in enumerate(_elements(text, notebook["cells"][0]), 1):
        cell = {key: (start, end) for key, start, end in _members(text, start)}
        if "source" not in cell or text[slice(*cell.get("cell_type", (0, 0)))] != '"code"':
            continue
        source = DECODER.raw_decode(text, cell["source"][0])[0]
        code = source if isinstance(source, str) else "".join(source)
        if is_python(code):
            yield Cell(number, *cell["source"], code, line)
        line += code.count("\n") + 1


def _speaks_python(metadata: Any) -> bool:
    language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
    return language in (None, "python")


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Key, and span of the value, of each member of the JSON object that starts here."""
    for key_start, key_end in _items(text, start, "{", "}"):
        key = DECODER.raw_decode(text, key_start)[0]
        colon = _skip(text, key_end)
        value = _skip(text, colon + 1)
        yield key, value, DECODER.raw_decode(text, value)[1]


def _elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Span of each element of the JSON array that starts here."""
    return _items(text, start, "[", "]")


def _items(text: str, start: int, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    """Spans of the elements of an array, or of the keys of an object."""
    if text[start : start + 1] != opening:
        raise json.JSONDecodeError(f"expected {opening}", text, start)
    position = _skip(text, start + 1)
    while text[position : position + 1] != closing:
        end = DECODER.raw_decode(text, position)[1]
        yield position, end
        position = _skip(text, end)
        if opening == "{":
            value = _skip(text, position + 1)
            position = _skip(text, DECODER.raw_decode(text, value)[1])
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = BLANK.match(text, position)
    assert match is not None
    return match.end()


def _encoded(old: str, code: str) -> str:
    """The new source in the shape of the old JSON: string or list, spacing, escapes, and every line that stays."""
    escapes = old.isascii() and "\\u" in old
    if not old.startswith("["):
        return json.dumps(code, ensure_ascii=escapes)
    spans = list(_elements(old, 0))
    literals = {json.loads(old[start:end]): old[start:end] for start, end in spans}
    margin = old[1 : spans[0][0]] if spans else ""
    between = old[spans[0][1] : spans[1][0]] if len(spans) > 1 else f",{margin or ' '}"
    closing = old[spans[-1][1] : -1] if spans else ""
    by_line = len(spans) != 1 or len("".join(literals).splitlines()) == 1  # or one string for the whole cell
    parts = code.splitlines(keepends=True) if by_line else [code]
    lines = [literals.get(part) or json.dumps(part, ensure_ascii=escapes) for part in parts]
    return f"[{margin}{between.join(lines)}{closing}]"


def _with_newline(code: str) -> str:
    return code if code.endswith("\n") or not code else f"{code}\n"
