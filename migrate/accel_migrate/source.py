"""A Python file as bytes, text and positions: what is read is what is written back, byte for byte."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accel_migrate.errors import SourceError

_WORDS = (b"torch", b".cuda(", b".backward(")
_BUILTINS = {"__len__": "len", "__iter__": "iter", "__next__": "next"}


def concerns_torch(data: bytes) -> bool:
    """Whether a file can have to do with a training: a helper may move what it is given without a word about torch."""
    return any(word in data for word in _WORDS)


@dataclass(frozen=True)
class Source:
    """One file. `text` keeps the newlines of the file; the byte order mark is held aside."""

    path: Path
    data: bytes
    text: str
    encoding: str
    bom: bool

    @classmethod
    def from_bytes(cls, path: Path, data: bytes) -> Source:
        if b"\0" in data:
            raise SourceError("is a binary file, not Python source")
        bom = data.startswith(codecs.BOM_UTF8)
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = (data[len(codecs.BOM_UTF8) :] if bom else data).decode("utf-8" if bom else encoding)
        except SyntaxError as error:
            raise SourceError(f"has no usable encoding: {error.msg or error}", 1) from error
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise SourceError(f"is not text in its declared encoding ({error.encoding})", line) from error
        return cls(path, data, text, "utf-8" if bom else encoding, bom)

    def to_bytes(self, text: str) -> bytes:
        """The bytes of a rewritten text, in this file's encoding."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)

    @cached_property
    def tree(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in a user's string is not our news
                tree = ast.parse(self.text)
        except SyntaxError as error:
            raise SourceError(f"does not parse: {error.msg}", error.lineno) from error
        except (RecursionError, MemoryError) as error:
            raise SourceError("is nested too deeply to parse") from error
        return _Plain().visit(tree) if any(f"{name}(" in self.text for name in _BUILTINS) else tree

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of each line, as `ast` counts lines: \\n, \\r\\n and a lone \\r end one."""
        starts = [0]
        text = self.text
        position = 0
        while True:
            newline = text.find("\n", position)
            carriage = text.find("\r", position)
            if newline < 0 and carriage < 0:
                return starts
            if carriage >= 0 and (newline < 0 or carriage < newline):
                position = carriage + (2 if text.startswith("\r\n", carriage) else 1)
            else:
                position = newline + 1
            starts.append(position)

    def offset(self, line: int, utf8_column: int) -> int:
        """Where `ast` means by a line and a column in UTF-8 bytes."""
        start = self.line_starts[line - 1]
        if self.text.isascii():
            return start + utf8_column
        row = self.text[start : start + utf8_column]
        if row.isascii():
            return start + utf8_column
        return start + len(row.encode()[:utf8_column].decode())

    def start(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> str:
        if not self.text.isascii():
            return self.text[self.start(node) : self.end(node)]
        starts = self.line_starts
        last, column = node.end_lineno or 0, node.end_col_offset or 0
        return self.text[starts[node.lineno - 1] + node.col_offset : starts[last - 1] + column]

    def line_of(self, offset: int) -> int:
        return bisect_right(self.line_starts, offset)


class _Plain(ast.NodeTransformer):
    """`loader.__len__()` as what it is, `len(loader)`: nobody has to know two spellings. The places in the text stay."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[], keywords=[]) if name in _BUILTINS:
                if not (isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"):
                    builtin = ast.copy_location(ast.Name(_BUILTINS[name], ast.Load()), node.func)
                    return ast.copy_location(ast.Call(builtin, [owner], []), node)
        return node
