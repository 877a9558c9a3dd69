"""Python code as coloured HTML, line by line, with the characters that changed marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

Token = tuple[str, str]  # the CSS class, or "", and the text
Span = tuple[int, int]  # characters of a line, the end left out

# The first that fits wins: the particular before the general.
CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "n"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "d"),
    (Name.Builtin, "b"),
)


def highlighted(text: str) -> list[list[Token]]:
    """The tokens of each line."""
    lines: list[list[Token]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = next((name for parent, name in CLASSES if kind is parent or kind[: len(parent)] == parent), "")
        first, *others = value.split("\n")
        lines[-1].append((name, first))
        lines.extend([(name, other)] for other in others)
    return lines[:-1] if text.endswith("\n") else lines


def to_html(tokens: Sequence[Token], marked: Sequence[Span] = ()) -> str:
    """One line of HTML; the marked characters are emphasised."""
    pieces = []
    for name, text, is_marked in _cut(tokens, marked):
        html = escape(text, quote=False)
        html = f'<i class="{name}">{html}</i>' if name else html
        pieces.append(f"<mark>{html}</mark>" if is_marked else html)
    return "".join(pieces)


def _cut(tokens: Sequence[Token], marked: Sequence[Span]) -> Iterator[tuple[str, str, bool]]:
    """Tokens, cut where a mark begins or ends."""
    borders = sorted({border for span in marked for border in span})
    position = 0
    for name, text in tokens:
        end = position + len(text)
        cuts = [position, *(border for border in borders if position < border < end), end]
        for start, stop in pairwise(cuts):
            if start < stop:
                yield name, text[start - position : stop - position], any(a <= start < b for a, b in marked)
        position = end
