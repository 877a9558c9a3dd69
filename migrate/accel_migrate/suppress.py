"""Comments by which the author of a file tells the tool to stay away from a line or from the whole file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.plan import Note

COMMENT = re.compile(r"#\s*accel:\s*(?P<what>skip-file|ignore)\b(?:\s*\[(?P<codes>[^\]]*)\])?")
UNUSED = "AM910"


@dataclass(frozen=True, slots=True)
class Suppression:
    """One `# accel: ignore[...]`; it covers the whole statement that its line belongs to."""

    first: int
    last: int
    line: int
    column: int
    codes: frozenset[str]  # empty: every code

    def covers(self, code: str, line: int) -> bool:
        return self.first <= line <= self.last and (not self.codes or code in self.codes)


@dataclass(frozen=True, slots=True)
class Suppressions:
    """The comments of one file."""

    skip_line: int | None = None  # where `# accel: skip-file` stands
    ignores: tuple[Suppression, ...] = ()

    def covering(self, code: str, line: int) -> Suppression | None:
        return next((each for each in self.ignores if each.covers(code, line)), None)

    def unused(self, used: Iterable[Suppression]) -> Iterator[Note]:
        for each in set(self.ignores) - set(used):
            codes = ", ".join(sorted(each.codes)) or "any rule"
            message = f"the comment ignores {codes}, but nothing of it was found here; remove it"
            yield Note(UNUSED, each.line, each.column, message)


def suppressions(text: str) -> Suppressions:
    """Read the comments of a program that parses."""
    if not re.search(r"#\s*accel:", text):
        return Suppressions()
    skip_line = None
    ignores: list[Suppression] = []
    for token, first, last in _comments(text):
        match = COMMENT.match(token.string)
        if match is None:
            continue
        line, column = token.start
        if match["what"] == "skip-file":
            skip_line = skip_line or line
        else:
            codes = frozenset(code.strip().upper() for code in (match["codes"] or "").split(",") if code.strip())
            ignores.append(Suppression(first, last, line, column + 1, codes))
    return Suppressions(skip_line, tuple(ignores))


def _comments(text: str) -> Iterator[tuple[tokenize.TokenInfo, int, int]]:
    """Each comment, with the first and last line of the logical line that it stands in."""
    first: int | None = None
    waiting: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            waiting.append(token)
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            last = token.start[0]
            yield from ((comment, first if first is not None else comment.start[0], last) for comment in waiting)
            first, waiting = None, []
        elif token.type == tokenize.NL and first is None:
            # A comment on a line of its own belongs to no statement.
            yield from ((comment, comment.start[0], comment.start[0]) for comment in waiting)
            waiting = []
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and first is None:
            first = token.start[0]
