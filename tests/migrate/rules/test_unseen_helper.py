"""AM607: code that was not analysed, and that every process runs."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted


def test_names_an_evaluation_that_was_not_given():
    source = training(functions="from judging import judge\n", after="print(judge(model, test_loader))")
    assert "judge() (line" in noted(source, "AM607")


def test_names_an_object_that_is_used_for_its_effect():
    source = training(functions="from .notes import Book\nbook = Book('runs')\n", after="book.note(total)")
    assert "book.note()" in noted(source, "AM607")


@pytest.mark.parametrize(
    ("functions", "after"),
    [
        ("from sklearn.metrics import f1_score\n", "print(f1_score(y, y))"),
        ("from shaping import shape\n", "y = shape(y)"),  # gets nothing that is prepared, and gives something back
        ("def judge(net):\n    return 1\n", "judge(model)"),
        ("from judging import judge\n", ""),
        ("from blending import blend\n", "mixed = blend(y)\nmixed.detach_()"),
        ("from judging import judge\nme = int(os.environ.get('RANK', 0))\n", "if me == 0:\n    judge(model)"),
    ],
)
def test_says_nothing_otherwise(functions: str, after: str):
    assert "AM607" not in codes(training(functions=functions, after=after))
