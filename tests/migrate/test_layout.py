"""Lines under an opening bracket stay under it when what stands before the bracket changes."""

from __future__ import annotations

import pytest
from accel_migrate.layout import edited, header, splice
from accel_migrate.plan import Replace


def replaced(text: str, old: str, new: str) -> str:
    start = text.index(old)
    return edited(text, 0, [Replace(start, start + len(old), new)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("print(a,\n      b)", "accelerator.print(a,\n                  b)"),
        ("print(f(a,\n        b),\n      c)", "accelerator.print(f(a,\n                    b),\n                  c)"),
        ("print(\n    a,\n    b,\n)", "accelerator.print(\n    a,\n    b,\n)"),
        ("print('''\n      a''',\n      b)", "accelerator.print('''\n      a''',\n                  b)"),
        ("print(a, b)", "accelerator.print(a, b)"),
        ("print(a,\n    b)", "accelerator.print(a,\n    b)"),
    ],
)
def test_alignment_follows_its_bracket(before: str, after: str) -> None:
    assert replaced(before, "print", "accelerator.print") == after


def test_alignment_moves_left_when_the_text_shrinks() -> None:
    assert replaced("long_name(a,\n          b)", "long_name", "f") == "f(a,\n  b)"


def test_an_edit_behind_the_bracket_moves_nothing() -> None:
    assert replaced("f(old,\n  b)", "old", "much_longer") == "f(much_longer,\n  b)"


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        splice("abcdef", 0, [Replace(0, 3, "x"), Replace(2, 4, "y")])


def test_edits_beside_each_other_are_all_made() -> None:
    assert splice("abcdef", 10, [Replace(13, 14, "D"), Replace(10, 11, "A"), Replace(16, 16, "!")]) == "AbcDef!"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("if a: b", "if a:"),
        ("if a[1:2]:\n    b", "if a[1:2]:"),
        ("for x in {1: 2}: pass", "for x in {1: 2}:"),
        ("while (lambda: 1)(): pass", "while (lambda: 1)():"),
        ("if f(lambda: 1):\n    pass", "if f(lambda: 1):"),
        ("with a as b, c as d:\n    pass", "with a as b, c as d:"),
        ("def f(a: int = 1) -> dict[str, int]:\n    pass", "def f(a: int = 1) -> dict[str, int]:"),
        ("if (\n    a\n):\n    pass", "if (\n    a\n):"),
    ],
)
def test_the_head_of_a_statement_ends_at_its_own_colon(statement: str, expected: str) -> None:
    assert header(statement) == expected
