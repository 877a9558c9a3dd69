"""Which of two places in one function runs after the other."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first, follows, may_follow
from accel_migrate.source import Source


def places(text: str) -> tuple[Module, ast.Call, ast.Call]:
    module = Module(Source.from_bytes(Path("a.py"), textwrap.dedent(text).encode()))
    calls = {ast.unparse(call.func): call for call in module.calls}
    return module, calls["first"], calls["second"]


@pytest.mark.parametrize(
    "text",
    [
        "first()\nsecond()\n",
        "first()\nfor i in x:\n    second()\n",
        "for i in x:\n    first()\nsecond()\n",
        "for i in x:\n    first()\n    second()\n",
        "while x:\n    first()\nelse:\n    second()\n",
        "if first():\n    second()\n",
        "try:\n    first()\nexcept E:\n    second()\n",
        "def f():\n    first()\n    x = [second() for i in y]\n",
        "first()\ndef f(x=second()):\n    pass\n",
    ],
)
def test_comes_first(text: str) -> None:
    module, first, second = places(text)
    assert follows(module, first, second) and comes_first(module, first, second)
    assert not follows(module, second, first)


@pytest.mark.parametrize(
    "text",
    [
        "if x:\n    first()\nelse:\n    second()\n",
        "if x:\n    first()\n    sys.exit()\nsecond()\n",
        "first(second())\n",
        "def f():\n    first()\ndef g():\n    second()\n",
    ],
)
def test_neither_follows_the_other(text: str) -> None:
    module, first, second = places(text)
    assert not follows(module, first, second) and not follows(module, second, first)


def test_another_round_is_a_later_one() -> None:
    for loop in ("for i in x:", "while x:", "for j in y:\n  for i in x:"):
        module, first, second = places(f"{loop}\n    second()\n    first()\n")
        assert not follows(module, first, second) and may_follow(module, first, second), loop


def test_functions_run_in_any_order() -> None:
    module, first, second = places("def f():\n    second()\ndef g():\n    first()\n")
    assert may_follow(module, first, second) and may_follow(module, second, first)
    module, first, second = places("def f():\n    second()\n    first()\n")
    assert not may_follow(module, first, second)
