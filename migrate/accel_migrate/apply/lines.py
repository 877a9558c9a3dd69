"""Comments and blank lines above statements: who keeps them when statements come and go."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile
from textwrap import dedent

import libcst as cst

KEPT_COMMENT = "# %%accel:"  # marks the cells of a notebook; never lost
BLANK = cst.EmptyLine(indent=False)


def leading(node: cst.BaseStatement) -> list[cst.EmptyLine]:
    return list(getattr(node, "leading_lines", ()))


def with_leading(node: cst.BaseStatement, lines: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    return node.with_changes(leading_lines=lines)


def leading_blank(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    blank = []
    for line in lines:
        if line.comment is not None:
            break
        blank.append(line)
    return blank


def under_one_guard(first: cst.BaseStatement, second: cst.BaseStatement) -> cst.BaseStatement:
    """The body of the second `if` or `for` joins that of the first; its comments and blank lines go with it."""
    assert isinstance(first, cst.If | cst.For) and isinstance(second, cst.If | cst.For)
    opening, added = list(second.body.body), leading(second)
    opening[0] = with_leading(opening[0], added)  # type: ignore[arg-type]
    return first.with_changes(body=first.body.with_changes(body=[*first.body.body, *opening]))


def up_to_mark(lines: Sequence[cst.EmptyLine]) -> int:
    """How many lines there are up to the last mark of a notebook's cell, with it; what is inserted belongs behind it."""
    marks = [i for i, line in enumerate(lines) if line.comment and line.comment.value.startswith(KEPT_COMMENT)]
    return marks[-1] + 1 if marks else 0


def without_last_comment(lines: list[cst.EmptyLine], most: int | None = None) -> list[cst.EmptyLine]:
    """Without the comment block that touches the statement; or its last lines, also behind blank ones.

    A notebook's cell marks stay.
    """
    kept = list(lines)
    while most and kept and kept[-1].comment is None:
        kept.pop()
    parted = len(kept)
    while (
        parted - len(kept) != most
        and kept
        and kept[-1].comment is not None
        and not kept[-1].comment.value.startswith(KEPT_COMMENT)
    ):
        kept.pop()
    return kept


def merged(earlier: list[cst.EmptyLine], later: list[cst.EmptyLine], first: bool) -> list[cst.EmptyLine]:
    """What stands between two statements when the one between them went: comments of both, blank lines not doubled."""
    blank_before = len(leading_blank(earlier))
    comments = earlier[blank_before:]
    blank_after = len(leading_blank(later))
    rest = later[blank_after:]
    if comments:
        ending = len(leading_blank(comments[::-1]))
        if not ending and not rest:
            later = []  # what was said of the statement that went is said of the next one
        return [*(comments if first else earlier), *later[min(ending, blank_after) :]]
    if first:
        return [*earlier, *rest]
    return [*(earlier if blank_before >= blank_after else later[:blank_after]), *rest]


def commented_out(lines: Sequence[cst.EmptyLine]) -> Sequence[cst.EmptyLine]:
    """The comments right below a statement that are code of its block, up to a blank line: `# optimizer = Adam(...)`."""
    run = list(takewhile(lambda line: line.comment is not None, lines))
    if not run or len(run) == len(lines):
        return []
    try:
        tree = ast.parse(dedent("\n".join(line.comment.value.lstrip("#") for line in run if line.comment is not None)))
    except SyntaxError:
        return []
    return run if all(map(_does_something, tree.body)) else []


def _does_something(statement: ast.stmt) -> bool:
    """And is no word, nor `note: word`."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return not isinstance(statement, ast.AnnAssign) or statement.value is not None
