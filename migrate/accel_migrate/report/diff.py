"""Unified diffs in the file's own bytes, so that `git apply` takes them: CRLF, any encoding, no final newline."""

from __future__ import annotations

import os
from collections.abc import Iterator

from accel_migrate.matched_lines import MatchedLines
from accel_migrate.outcome import Outcome, Part

NO_NEWLINE = b"\\ No newline at end of file\n"
COLORS = {b"-": b"\x1b[31m", b"+": b"\x1b[32m", b"@": b"\x1b[36m"}
BOLD, RESET = b"\x1b[1m", b"\x1b[0m"


def unified(outcome: Outcome, *, color: bool = False) -> bytes:
    """The diff of a file; of a notebook, one diff per changed cell, for reading."""
    lines = [line for part in outcome.parts for line in _part(outcome.name, part)]
    return b"".join(map(_colored, lines) if color else lines)


def _part(name: str, part: Part) -> Iterator[bytes]:
    label = f"{name.lstrip('/')}{f':{part.label}' if part.label else ''}"
    old, new = (_quoted(f"{side}/{label}") for side in "ab")
    hunks = list(_hunks(_lines(part.before), _lines(part.after)))
    if hunks:
        yield from (b"--- " + old + b"\n", b"+++ " + new + b"\n")
    for line in hunks:
        yield line if line.endswith(b"\n") else line + b"\n" + NO_NEWLINE


def _hunks(before: list[bytes], after: list[bytes]) -> Iterator[bytes]:
    for group in MatchedLines(before, after).get_grouped_opcodes():
        (_, start, _, new_start, _), (_, _, end, _, new_end) = group[0], group[-1]
        yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n".encode()
        for kind, first, last, new_first, new_last in group:
            if kind == "equal":
                yield from (b" " + line for line in before[first:last])
            else:
                yield from (b"-" + line for line in before[first:last])
                yield from (b"+" + line for line in after[new_first:new_last])


def _range(start: int, end: int) -> str:
    """Lines as the format counts them: from 1, and an empty range by the line before it."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


def _lines(data: bytes) -> list[bytes]:
    """Lines as git sees them: only a line feed ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _quoted(name: str) -> bytes:
    """A name as git writes it: quoted when it holds what would end or break the line."""
    special = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if any(character in special for character in name):
        return os.fsencode('"' + "".join(special.get(character, character) for character in name) + '"')
    # A tab ends the name, so that one with spaces is not cut at the first.
    return os.fsencode(name + ("\t" if " " in name else ""))


def _colored(line: bytes) -> bytes:
    color = BOLD if line.startswith((b"--- ", b"+++ ")) else COLORS.get(line[:1])
    return color + line.rstrip(b"\n") + RESET + b"\n" if color else line
