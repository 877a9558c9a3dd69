"""Who calls whom: methods that a class leaves to those that inherit, `super()`, and bases of other files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from accel_migrate.flow.calls import Flows
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source

BASE = """
class Base:
    def __init__(self, model):
        self.model = model

    def fit(self):
        self.epoch()

    def epoch(self):
        raise NotImplementedError
"""
OWN = """
class Own(Base):
    def __init__(self, model):
        super().__init__(model)

    def epoch(self):
        return 1
"""
RUN = "own = Own(None)\nown.fit()\n"


def read(name: str, text: str) -> Module:
    return Module(Source.from_bytes(Path(name), text.encode()))


def callees(**files: str) -> dict[str, set[str]]:
    """What each call runs, by how both are written: `Own.epoch`."""
    program = Program(read(f"{name}.py", text) for name, text in files.items())
    flows = Flows(program)
    found: dict[str, set[str]] = {}
    for call, functions in flows.callees.items():
        for function in functions:
            scope = flows.function_file[function].scopes[function]
            owner = getattr(scope.parent.node, "name", "") if scope.parent is not None else ""
            found.setdefault(ast.unparse(call), set()).add(f"{owner}.{getattr(function, 'name', 'lambda')}")
    return found


def test_a_method_that_is_inherited_calls_those_of_the_class_that_inherits() -> None:
    found = callees(train=BASE + OWN + RUN)
    assert found["own.fit()"] == {"Base.fit"}
    assert found["self.epoch()"] == {"Base.epoch", "Own.epoch"}
    assert found["super().__init__(model)"] == {"Base.__init__"}


def test_a_base_class_of_another_file_and_one_that_a_package_hands_on() -> None:
    found = callees(base=BASE, own="from base import Base\n" + OWN, train="from own import Own\n" + RUN)
    assert found["own.fit()"] == {"Base.fit"}
    assert found["self.epoch()"] == {"Base.epoch", "Own.epoch"}
    handed = callees(
        base=BASE,
        hands="from base import *\n",
        own="from hands import Base\n" + OWN,
        train="from own import Own\n" + RUN,
    )
    assert handed["own.fit()"] == {"Base.fit"}
    dotted = callees(base=BASE, train="import base\n" + OWN.replace("(Base)", "(base.Base)") + RUN)
    assert dotted["self.epoch()"] == {"Base.epoch", "Own.epoch"}


def test_classes_that_are_derived_from_each_other_come_to_an_end() -> None:
    assert callees(train="class A(B): pass\nclass B(A): pass\nA().run()\n") == {}


@pytest.mark.parametrize(
    "owner",
    [
        "class Own:\n    kept = staticmethod(save)\nOwn.kept(net)\n",
        "class Own:\n    kept = staticmethod(save)\nown = Own()\nown.kept(net)\n",
        "@dataclass\nclass Own:\n    size: int\n    kept: object\nown = Own(1, save)\nown.kept(net)\n",
        "@dataclass\nclass First:\n    kept: object\nclass Own(First):\n    size: int\nown = Own(save, 1)\nown.kept(net)\n",
        "class Own(NamedTuple):\n    kept: object\nown = Own(kept=save)\nown.kept(net)\n",
    ],
)
def test_a_function_that_a_class_or_a_record_keeps(owner: str) -> None:
    found = callees(train=f"def save(model):\n    return model.state_dict()\n{owner}")
    assert found[owner.splitlines()[-1]] == {".save"}


def test_a_lambda_of_a_class_gets_its_object_unless_it_is_static() -> None:
    text = "class Own:\n    kept = {}\nOwn().kept(make())\n"
    for lambda_, first in (("staticmethod(lambda net: net)", True), ("lambda own, net: own", False)):
        program = Program([read("train.py", text.format(lambda_))])
        (file,) = program.modules
        made = next(node for node in file.walk(file.tree, ast.Call) if ast.unparse(node) == "make()")
        flows = Flows(program, [(file, made, "net")])
        (function,) = file.walk(file.tree, ast.Lambda)
        assert bool(flows.made(file, function.body, "net")) == first


def loaders(text: str) -> dict[str, set[int]]:
    """The lines of the loaders that `self.<name>` and `it.<name>` may be, by how they are written in a call of `use`."""
    program = Program([read("train.py", text)])
    (file,) = program.modules
    calls = [call for call in file.walk(file.tree, ast.Call) if getattr(call.func, "id", "") == "DataLoader"]
    flows = Flows(program, [(file, call, "loader") for call in calls])
    used = [call.args[0] for call in file.walk(file.tree, ast.Call) if getattr(call.func, "id", "") == "use"]
    return {ast.unparse(node): {made.node.lineno for made in flows.made(file, node, "loader")} for node in used}  # type: ignore[attr-defined]


TWO = """class One{base}:
    def __init__(self):
        self.first = DataLoader()
    def run(self):
        use(self.second)
class Two:
    def __init__(self):
        self.second = DataLoader()
{more}
"""


@pytest.mark.parametrize(
    ("base", "more", "found"),
    [
        ("", "", set()),
        ("", "it.second = DataLoader()", {9}),  # of which object, is not known
        ("(unknown())", "", {8}),
        ("(Two)", "", {8}),
        ("", "class Three(One, Two): pass", {8}),
        ("(nn.Module)", "from torch import nn", set()),
        ("(object)", "", set()),
    ],
)
def test_what_a_class_sets_on_itself_is_seen_by_its_family_alone(base: str, more: str, found: set[int]) -> None:
    assert loaders(TWO.format(base=base, more=more))["self.second"] == found


def test_an_object_that_is_handed_about_may_be_of_any_class() -> None:
    assert loaders(TWO.format(base="", more="use(it.second)"))["it.second"] == {8}


def test_a_class_that_takes_over_what_another_object_has_sees_all() -> None:
    text = TWO.format(base="", more="").replace(
        "    def run", "        self.__dict__.update(two.__dict__)\n    def run"
    )
    assert loaders(text)["self.second"] == {9}


def test_a_part_of_a_list_is_not_what_a_mapping_holds() -> None:
    held = "both = {'train': DataLoader()}\nuse(both[phase])\nuse(pictures[:3])\n"
    assert loaders(held) == {"both[phase]": {1}, "pictures[:3]": set()}


def test_a_parameter_that_has_the_name_of_an_imported_function_is_another_thing() -> None:
    data = "def make():\n    return 1\n"
    use = "from data import make\ndef run(make):\n    make()\ndef other():\n    return make\nrun(other)\nmake(0)\n"
    assert callees(data=data, train=use) == {"make()": {".other"}, "run(other)": {".run"}, "make(0)": {".make"}}
