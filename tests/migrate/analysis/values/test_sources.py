"""The walk back from a value: names, callers, defaults, returned values, containers and what is put into them."""

from __future__ import annotations

import ast

import pytest
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.analysis.values.sources import behind, code_behind, contents
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module

from tests.migrate.analysis.reading import modules


def asked(*texts: str) -> tuple[CallGraph, Module, ast.expr]:
    """What `show(...)` of the first file is given first."""
    files = modules(*texts)
    graph = CallGraph(Roles(Program(files)))
    (call,) = [call for call in files[0].calls if unparse(call.func) == "show"]
    return graph, files[0], call.args[0]


@pytest.mark.parametrize(
    "text",
    [
        "x = origin\nshow(x)",
        "def f(x):\n    show(x)\n\nf(origin)",
        "def f(x=origin):\n    show(x)\n\nf()",
        "def f():\n    return origin\n\nshow(f())",
        "x = []\nx.append(origin)\nshow(x)",
        "x = {}\nx['a'] = origin\nshow(x)",
        "x = zeros(3)\nx.add_(origin)\nshow(x)",
        "x = 0\nx += origin\nshow(x)",
        "class A:\n    kept = origin\n\n    def f(self):\n        show(self.kept)",
        "class A:\n    def __init__(self):\n        self.kept = origin\n\n    def f(self):\n        show(self.kept)",
        "show([1 + origin for _ in range(3)])",
    ],
)
def test_goes_back_to_what_a_value_is_computed_by(text: str) -> None:
    assert "origin" in {unparse(part) for _, part in behind(*asked(text))}


def test_goes_on_in_the_file_that_sets_a_name() -> None:
    found = behind(*asked("from made import x\nshow(x)", "# made.py\nx = origin"))
    assert "origin" in {unparse(part) for _, part in found}


def test_a_value_that_is_bound_later_is_not_behind_it() -> None:
    assert "origin" not in {unparse(part) for _, part in behind(*asked("x = 1\nshow(x)\nx = origin"))}


def test_contents_are_what_is_kept_and_not_what_it_is_computed_by() -> None:
    text = "inner = build(origin)\nkept = {'a': inner, 'b': [2]}\nkept['c'] = last\nshow(kept)"
    found = {unparse(part) for _, part in contents(*asked(text))}
    assert {"build(origin)", "2", "last"} <= found
    assert "origin" not in found


def test_the_code_behind_a_value_is_what_it_names_and_calls() -> None:
    text = "class A:\n    part = B\n\nclass B: ...\n\nclass C: ...\n\nx = A()\nshow(x)"
    graph, module, node = asked(text)
    found = [getattr(each, "name", "") for _, each in code_behind(graph, [(module, node)])]
    assert [name for name in found if name] == ["A", "B"]
