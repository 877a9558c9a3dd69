"""The text that libcst reads: statements that keep their place and their text stand in it as one name for each run.

Reading with libcst costs many times what all else does, and of a statement that is not taken apart it needs to know only
where it stands. What is put behind a name comes back byte for byte.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import libcst as cst

from accel_migrate.apply.sorting import Sorted, blocks
from accel_migrate.plan import Replace
from accel_migrate.source import Source

# Characters that libcst may not keep: a text that holds one is read whole, to see whether it does.
UNUSUAL = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x85\u2028\u2029]|\r(?!\n)")

_CONTINUED = ("\\\n", "\\\r\n")

# A line that holds no code, by what it is indented with.
_BELOW = re.compile(r"\n([ \t]*)(?=#|\r?\n|\Z)[^\n]*")
_REST_OF_LINE = re.compile(r"[^\n]*")


class Skeleton:
    """The edited file, with a name in place of each run of statements that libcst need not read."""

    def __init__(self, source: Source, edits: Sorted, *, whole: bool = False) -> None:
        self.source = source
        self.edits = edits
        spliced = Spliced(source.text, edits.replacements())
        self._runs: list[Sequence[ast.stmt]] = []
        mixed = spliced.text.count("\r\n") not in (0, spliced.text.count("\n"))
        if not (whole or mixed or UNUSUAL.search(spliced.text)):
            first = next((s for s in source.tree.body if self._is_indented(s)), None)
            self._indented_from = source.start(first) if first is not None else len(source.text)
            self._block(source.tree.body)
        self._mark = _unused_name(spliced.text, edits.written())
        self._kept: dict[str, tuple[str, int]] = {}  # the text behind each name, and how many statements it is
        self.text = self._written(spliced)

    def count(self, node: cst.BaseStatement) -> int:
        """How many statements of the file a statement of the tree stands for."""
        if not isinstance(node, cst.SimpleStatementLine):
            return 1
        match node.body[0]:
            case cst.Expr(cst.Name(name)) if name in self._kept:
                return self._kept[name][1]
        return len(node.body)

    def name(self, text: str, statements: int = 1) -> str:
        """A name that the text will be put back for."""
        name = f"{self._mark}{len(self._kept)}_"
        self._kept[name] = text, statements
        return name

    def restored(self, code: str) -> str:
        """The code with the text behind each name put back."""
        return re.sub(rf"{self._mark}\d+_", lambda found: self._kept[found.group()][0], code)

    # ---- what need not be read

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        if not self._starts_line(statements[0]):
            return  # it stands behind the colon
        run: list[ast.stmt] = []
        for line in _lines(statements):
            if self._is_closed(line[-1]) and not any(statement in self.edits.touched for statement in line):
                run += line
                continue
            self._runs += [run] if run else []
            run = []
            if len(line) == 1 and self._only_stands(line[0]) and self._is_closed(line[0]):
                self._runs.append(line)
            elif line[0] not in self.edits.unwrapped and line[0] not in self.edits.guarded:
                for block in blocks(line[0]):  # what moves to another column is left to libcst
                    self._block(block)
        self._runs += [run] if run else []

    def _only_stands(self, statement: ast.stmt) -> bool:
        """Whether only the place of a statement matters, with its comments and the end of its line."""
        if statement in self.edits.guarded:  # it moves to another column, and so would its further lines
            return not _is_compound(statement) and statement.lineno == statement.end_lineno
        return statement in self.edits.removed or not _is_compound(statement)

    def _is_closed(self, statement: ast.stmt) -> bool:
        """Whether libcst takes no line below a statement for a part of it, and learns nothing from its indentation."""
        if not _is_compound(statement):
            return True
        text, start = self.source.text, self.source.start(statement)
        if start <= self._indented_from or text.startswith("elif", start):
            return False
        indent = text[text.rfind("\n", 0, start) + 1 : start]
        below = _REST_OF_LINE.match(text, self.source.end(statement))
        while below is not None and (below := _BELOW.match(text, below.end())) is not None:
            if not indent.startswith(below.group(1)):
                return False
        return True

    def _is_indented(self, statement: ast.stmt) -> bool:
        """Whether it has a block in lines of its own; the first of a file tells libcst what the file indents with."""
        return any(self._starts_line(block[0]) for block in blocks(statement))

    def _starts_line(self, statement: ast.stmt) -> bool:
        text, start = self.source.text, self._start(statement)
        line = text.rfind("\n", 0, start) + 1
        return not text[line:start].strip() and not text.endswith(_CONTINUED, 0, line)

    def _start(self, statement: ast.stmt) -> int:
        decorators = getattr(statement, "decorator_list", None)
        if decorators:
            return self.source.text.rindex("@", 0, self.source.start(decorators[0]))
        return self.source.start(statement)

    def _written(self, spliced: Spliced) -> str:
        pieces: list[str] = []
        position = 0
        for run in self._runs:
            start, end = spliced.moved(self._start(run[0])), spliced.moved(self.source.end(run[-1]))
            pieces += [spliced.text[position:start], self.name(spliced.text[start:end], len(run))]
            position = end
        return "".join([*pieces, spliced.text[position:]])


class Spliced:
    """A text with parts of it replaced, and where each place of it has gone."""

    def __init__(self, text: str, replacements: Sequence[Replace]) -> None:
        pieces: list[str] = []
        position = shift = 0
        self._ends: list[int] = []
        self._shifts = [0]
        for part in replacements:
            pieces += [text[position : part.start], part.text]
            position = part.end
            shift += len(part.text) - (part.end - part.start)
            self._ends.append(part.end)
            self._shifts.append(shift)
        self.text = "".join([*pieces, text[position:]])

    def moved(self, offset: int) -> int:
        return offset + self._shifts[bisect_right(self._ends, offset)]


def _lines(statements: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The statements of a block, with those together that stand in one line."""
    line: list[ast.stmt] = []
    for statement in statements:
        if line and line[-1].end_lineno != statement.lineno:
            yield line
            line = []
        line.append(statement)
    yield line


def _is_compound(statement: ast.stmt) -> bool:
    return hasattr(statement, "body") or isinstance(statement, ast.Match)


def _unused_name(text: str, more: list[str]) -> str:
    name = "_kept"
    while name in text or any(name in each for each in more):
        name += "_"
    return name
