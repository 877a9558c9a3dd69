"""Hides what only IPython understands behind plain Python of the same number of lines, and brings it back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence

# A cell magic whose body is Python all the same; the body of any other is another language.
PYTHON_CELL_MAGICS = frozenset({"time", "timeit", "capture", "prun"})
CELL_MAGIC = re.compile(r"\s*%%(\w+)")
# In the joined program a later cell may not start with it, and a kernel keeps it from then on.
FUTURE = re.compile(r"(?P<start>)(?P<magic>from\s+__future__\s+import\s+[\w, ]+)")
STATEMENT = re.compile(r"(?P<start>\s*)(?P<magic>[%!?].*|[\w.]+\?{1,2}\s*$)", re.DOTALL)
ASSIGNMENT = re.compile(r"(?P<start>\s*[\w.,\s]+=\s*)(?P<magic>[%!][^=].*)", re.DOTALL)
MASK = re.compile(r"__accel_magic__\((\d+)\)|# %%accel:more (\d+)")


def is_python(code: str) -> bool:
    """Whether the body of a cell is Python, perhaps with magics in it."""
    match = CELL_MAGIC.match(code)
    return match is None or match[1] in PYTHON_CELL_MAGICS


def mask(code: str, hidden: list[str]) -> str:
    """The cell as plain Python; what was taken out is appended to `hidden`."""
    if _parses(code) and "__future__" not in code:
        return code
    lines: list[str] = []
    continues = False
    for line in code.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        ending = line[len(body) :]
        match = None if continues else _magic(body)
        if continues:
            hidden.append(body)
            lines.append(f"# %%accel:more {len(hidden) - 1}{ending}")
        elif match and _at_statement(lines):
            hidden.append(match["magic"])
            lines.append(f"{match['start']}__accel_magic__({len(hidden) - 1}){ending}")
        else:
            lines.append(line)
            continue
        continues = body.endswith("\\")
    return "".join(lines)


def _magic(line: str) -> re.Match[str] | None:
    return STATEMENT.fullmatch(line) or ASSIGNMENT.fullmatch(line) or FUTURE.fullmatch(line)


def unmask(code: str, hidden: Sequence[str]) -> str:
    return MASK.sub(lambda match: hidden[int(match[1] or match[2])], code)


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _at_statement(lines: Sequence[str]) -> bool:
    """Whether a new statement may begin after these lines: no string or bracket is open."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            pass
    except tokenize.TokenError:
        return False
    except IndentationError:
        return True
    return True
