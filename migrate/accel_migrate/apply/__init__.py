"""Puts edits into a file: expressions are spliced inside their statement, statements are moved in the libcst tree.

The spliced text is parsed once, without what need not be read. Code that no edit names is never written anew: its nodes
stay the parser's own, comments and white space included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from accel_migrate.apply.blocks import Blocks
from accel_migrate.apply.skeleton import UNUSUAL, Skeleton
from accel_migrate.apply.sorting import Sorted
from accel_migrate.errors import SourceError
from accel_migrate.plan import Edit
from accel_migrate.source import Source

# libcst loses empty lines before a last line of blanks; nothing is ever edited there.
_BLANK_TAIL = re.compile(r"(?<=\n)[ \t\r\n]*[ \t][ \t\r\n]*\Z")


def apply(source: Source, edits: Iterable[Edit]) -> str:
    """The text of the file with all edits made."""
    found = Sorted(source, edits)
    try:
        try:
            return _applied(Skeleton(source, found))
        except cst.ParserSyntaxError:
            return _applied(Skeleton(source, found, whole=True))  # to name a line of the file
    except cst.ParserSyntaxError as error:
        raise SourceError(f"is not Python that libcst can parse: {error.message}", error.raw_line) from error
    except RecursionError as error:
        raise SourceError("is nested too deeply to rewrite") from error


def _applied(skeleton: Skeleton) -> str:
    text = skeleton.text
    end = _BLANK_TAIL.search(text)
    tail = end.group() if end is not None else ""
    module = cst.parse_module(text.removesuffix(tail))
    if UNUSUAL.search(text) and module.code + tail != text:
        raise SourceError("holds characters that cannot be kept byte for byte (a form feed or a lone CR)")
    return skeleton.restored(Blocks(module, skeleton).result()) + tail
