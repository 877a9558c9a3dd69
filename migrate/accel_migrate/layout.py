"""The look of a statement that was edited: continuation lines stay aligned with the bracket they hang under."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Sequence

from accel_migrate.plan import Replace

_OPEN, _CLOSE = "([{", ")]}"


def splice(text: str, base: int, edits: Sequence[Replace]) -> str:
    """Apply replacements, given in offsets of the file, to a text that begins at `base` there."""
    pieces: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        start, end = edit.start - base, edit.end - base
        if start < position:
            raise ValueError(f"edits overlap at offset {edit.start}")
        pieces += [text[position:start], edit.text]
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def edited(text: str, base: int, edits: Sequence[Replace], column: int = 0) -> str:
    """`splice`, and the lines that were aligned under an opening bracket are aligned again.

    The text begins at `column` of its line.
    """
    if "\n" not in text or any("\n" in edit.text for edit in edits):
        return splice(text, base, edits)
    alignments = _alignments(text, column)
    if not alignments:
        return splice(text, base, edits)
    starts = _line_starts(text)
    ordered = sorted(edits, key=lambda e: e.start)
    shifts: dict[int, int] = {}
    for row in sorted(alignments):
        opened_row, opened_column = alignments[row]
        offset = base + starts[opened_row] + opened_column
        grown = shifts.get(opened_row, 0)
        for edit in ordered:
            same_row = base + starts[opened_row] <= edit.start and edit.end <= offset
            if same_row and "\n" not in text[edit.start - base : edit.end - base]:
                grown += len(edit.text) - (edit.end - edit.start)
        if grown:
            shifts[row] = grown
    moved = list(edits)
    for row, shift in shifts.items():
        where = base + starts[row]
        if any(edit.start <= where < edit.end for edit in edits):
            continue
        moved.append(Replace(where, where, " " * shift) if shift > 0 else Replace(where, where - shift, ""))
    try:
        return splice(text, base, moved)
    except ValueError:
        return splice(text, base, edits)


def _alignments(text: str, indent: int) -> dict[int, tuple[int, int]]:
    """For each continuation line that is aligned under an opening bracket: the row and column of that bracket."""
    rows: dict[int, tuple[int, int]] = {}
    brackets: list[tuple[int, int, bool]] = []
    lines = text.splitlines(keepends=True)
    last_row = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start[0] - 1, token.start[1]
            if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT):
                continue
            if row > last_row:
                first = True
                last_row = row
            else:
                first = False
            if first and brackets:
                opened_row, opened_column, hugging = brackets[-1]
                if hugging and column == opened_column + 1 + (indent if opened_row == 0 else 0):
                    rows[row] = (opened_row, opened_column)
            last_row = max(last_row, token.end[0] - 1)
            if token.type == tokenize.OP and token.string in _OPEN:
                rest = lines[row][column + 1 :].strip()
                brackets.append((row, column, bool(rest) and not rest.startswith("#")))
            elif token.type == tokenize.OP and token.string in _CLOSE and brackets:
                brackets.pop()
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # only the looks are at stake
    return rows


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def header(text: str) -> str:
    """The head of a compound statement, up to and including the colon that opens its block."""
    depth = lambdas = 0
    starts = _line_starts(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == "lambda" and depth == 0:
            lambdas += 1
        if token.type != tokenize.OP:
            continue
        if token.string in _OPEN:
            depth += 1
        elif token.string in _CLOSE:
            depth -= 1
        elif token.string == ":" and depth == 0:
            if not lambdas:
                return text[: starts[token.end[0] - 1] + token.end[1]]
            lambdas -= 1
    raise ValueError("a compound statement without a colon")
