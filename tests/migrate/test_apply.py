"""Statements that lose everything they hold, and what takes over their comments."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.apply import apply
from accel_migrate.plan import Insert, Remove
from accel_migrate.source import Source


def without(text: str, *goes: str, then: str = "") -> str:
    """The text once the statements that read as given are removed; `then` is put after the last of them."""
    source = Source.from_bytes(Path("x.py"), dedent(text).lstrip("\n").encode())
    gone = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and source.code(node) in goes]
    assert len(gone) == len(goes)
    edits = [Remove(node) for node in gone]
    return apply(source, [*edits, Insert(gone[-1], (then,))] if then else edits)


def test_an_if_goes_with_all_it_held():
    assert without("a = 1\nif use_cuda:\n    m.cuda()\nb = 2\n", "m.cuda()") == "a = 1\nb = 2\n"


def test_blank_lines_around_a_comment_that_stays_are_not_doubled():
    text = "a = 1\n# other = 2\nm.cuda()\n\nn.cuda()\n\n# last\nb = 2\n"
    assert without(text, "m.cuda()", "n.cuda()") == "a = 1\n# other = 2\n\n# last\nb = 2\n"


def test_an_if_keeps_what_else_it_holds():
    assert without("if use_cuda:\n    m.cuda()\n    seed(1)\n", "m.cuda()") == "if use_cuda:\n    seed(1)\n"


def test_nested_ifs_go_together():
    assert without("if a:\n    if b:\n        m.cuda()\nc = 1\n", "m.cuda()") == "c = 1\n"


def test_an_else_that_is_left_alone_turns_the_condition():
    text = "if use_cuda:\n    m.cuda()\nelse:\n    slow()\n"
    assert without(text, "m.cuda()") == "if not use_cuda:\n    slow()\n"


def test_turning_a_negated_condition_takes_the_not_away():
    text = "if not quiet:\n    m.cuda()\nelse:\n    slow()\n"
    assert without(text, "m.cuda()") == "if quiet:\n    slow()\n"


def test_turning_a_comparison_puts_it_in_brackets():
    text = "if rank == 0:\n    m.cuda()\nelse:\n    slow()\n"
    assert without(text, "m.cuda()") == "if not (rank == 0):\n    slow()\n"


def test_an_empty_else_goes():
    assert without("if a:\n    b()\nelse:\n    m.cuda()\n", "m.cuda()") == "if a:\n    b()\n"


def test_both_branches_empty_go():
    assert without("x = 1\nif a:\n    m.cuda()\nelse:\n    m.cpu()\n", "m.cuda()", "m.cpu()") == "x = 1\n"


def test_a_condition_that_acts_stays():
    assert without("if start():\n    m.cuda()\n", "m.cuda()") == "if start():\n    pass\n"


def test_an_elif_behind_an_empty_branch_keeps_its_meaning():
    text = "if a:\n    m.cuda()\nelif b:\n    c()\n"
    assert without(text, "m.cuda()") == "if a:\n    pass\nelif b:\n    c()\n"


def test_a_loop_over_names_goes_with_its_body():
    text = "for k, v in batch.items():\n    batch[k] = v.cuda()\nx = 1\n"
    assert without(text, "batch[k] = v.cuda()") == "x = 1\n"


def test_a_loop_over_a_loader_stays():
    text = "for x in load():\n    x.cuda()\n"
    assert without(text, "x.cuda()") == "for x in load():\n    pass\n"


def test_what_takes_the_place_of_a_statement_takes_its_comment():
    text = "a = 1\n\n# wrap the model\nm = wrap(m)\nb = 2\n"
    assert without(text, "m = wrap(m)", then="m = p(m)") == "a = 1\n\n# wrap the model\nm = p(m)\nb = 2\n"


@pytest.mark.parametrize("above_comments", [True, False])
def test_what_is_put_before_a_statement_keeps_its_comments_and_its_cell(above_comments: bool) -> None:
    source = Source.from_bytes(Path("x.py"), b"a = 1\n# %%accel:cell 2\n# why\nb = 2\n")
    edits = [Insert(source.tree.body[1], ("new = 0",), "before", above_comments=above_comments)]
    lines = ["new = 0", "", "# why"] if above_comments else ["# why", "new = 0"]
    assert apply(source, edits) == "\n".join(["a = 1", "# %%accel:cell 2", *lines, "b = 2", ""])
