"""Unified diffs in the file's own bytes, so that `git apply` takes them: CRLF, any encoding, no final newline."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

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
    for line in difflib.diff_bytes(difflib.unified_diff, _lines(part.before), _lines(part.after), old, new):
        yield line if line.endswith(b"\n") else line + b"\n" + NO_NEWLINE


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
