"""Code that nothing runs."""

from __future__ import annotations

import ast

import pytest
from accel_migrate.flow.idle import Words

TEXT = """
def used(): pass
def unused(): used()
if __name__ == "__main__":
    def started(): used()
    class Never: pass
    started()
else:
    try:
        def tried(): pass
    finally:
        tried()
"""


def idle(text: str, running: tuple[str, ...] = (), imported: bool = False) -> set[str]:
    tree = ast.parse(text)
    words = Words([tree], [tree] if imported else [])
    return {unit.name for unit in words.idle([unit for unit in words.units if unit.name in running])}


def test_what_no_running_code_has_a_word_for_is_idle():
    assert idle(TEXT) == {"unused", "Never"}
    assert idle(TEXT, running=("unused",)) == {"Never"}


def test_nothing_is_idle_where_all_runs():
    assert idle(TEXT, running=("used", "unused", "started", "Never", "tried")) == set()
    assert idle("train()\n") == set()


def test_an_imported_file_does_not_run_its_main_guard():
    assert idle(TEXT, imported=True) == {"used", "unused"}


def test_a_name_that_is_looked_up_may_be_any():
    assert idle("def unused(): pass\nglobals()[name]()\n") == set()


def test_a_running_function_of_a_file_that_is_not_among_them() -> None:
    (train,) = ast.parse("def train(): step()\n").body
    tree = ast.parse("def step(): ...\n")
    assert Words([tree]).idle([train]) == frozenset()  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("line", "idle"),
    [
        ("net.eval()", {"penalty"}),
        ("eval('penalty' + '(x)')", set()),
        ("penalty(x)", set()),
        ("getattr(tools, name)(x)", set()),
        ("getattr(torch, name)(x)", {"penalty"}),
        ("tools.__dict__[name](x)", set()),
        ("models.__dict__[name](x)", {"penalty"}),
        ("importlib.import_module(name)", set()),
    ],
)
def test_a_name_that_is_looked_up_in_the_project_may_be_any(line: str, idle: set[str]) -> None:
    train = ast.parse(f"import importlib\nimport torch\nimport torchvision.models as models\nimport tools\n{line}\n")
    tools = ast.parse("def penalty(x):\n    return x\n")
    assert {unit.name for unit in Words([train, tools]).idle([])} == idle
