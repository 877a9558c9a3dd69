"""AM957: what changed is what the changes say."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from accel_migrate.apply import apply
from accel_migrate.check import violations
from accel_migrate.flow.version import Version
from accel_migrate.plan import Change, Edit, Guard, Insert, Remove, Replace, Substitute, Unwrap
from accel_migrate.source import Source

SCRIPT = """\
import torch

@decorated
def step(model, x):
    y = model(
        x.to(device),
        size,
    )
    if main:
        join()
    else:
        print(y)
    with region():
        y = y + 1
    return y

while going:
    step(model, x)
    going = False
"""


def told(edits: list[Edit], source: Source, text: str) -> list[str]:
    path = source.path
    result = Version(Source.from_bytes(path, text.encode()))
    changes = {path: [Change("AM101", 1, 1, "x", edits=tuple(edits))]}
    return [v.message for v in violations([Version(source)], {path: result}, changes) if v.code == "AM957"]


def statement(source: Source, text: str) -> ast.stmt:
    return next(n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and ast.unparse(n).startswith(text))


def replace(source: Source, old: str, new: str) -> Replace:
    start = source.text.index(old)
    return Replace(start, start + len(old), new)


EDITS: list[Callable[[Source], list[Edit]]] = [
    lambda s: [Insert(statement(s, "import"), ("import os", "print(os)"))],
    lambda s: [Remove(statement(s, "going"))],
    lambda s: [Remove(statement(s, "join"))],
    lambda s: [Unwrap(statement(s, "with"))],
    lambda s: [Guard(statement(s, "going"), "accelerator.is_main_process")],
    lambda s: [Substitute(statement(s, "if main"), ("accelerator.print(y)",))],
    lambda s: [replace(s, ".to(device)", "")],
    lambda s: [replace(s, "x.to(device),\n", "x,\n"), replace(s, "        size,\n", "")],
    lambda s: [replace(s, "def step(model, x)", "def step(model, x, accelerator)")],
]  # fmt: skip


@pytest.mark.parametrize("edits", EDITS)
def test_what_the_edits_say_is_accounted_for(edits: Callable[[Source], list[Edit]]) -> None:
    source = Source.from_bytes(Path("train.py"), SCRIPT.encode())
    made = edits(source)
    assert told(made, source, apply(source, made)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        size,\n", "", "`y = model(` would disappear"),
        ("    going = False\n", "", "`going = False` would disappear"),
        ("    with region():\n        y = y + 1\n", "    y = y + 1\n", "`with region():` would disappear"),
        ("while going", "while True", "`while going:` would disappear"),
        ("    return y\n", "    y = y\n    return y\n", "`y = y` would be there"),
        ("@decorated\n", "", "would disappear"),
        ("def step(model, x)", "def step(model, x=1)", "would disappear"),
        (
            "    if main:\n        join()\n    else:\n        print(y)\n",
            "    if main:\n        print(y)\n    else:\n        join()\n",
            "would disappear",
        ),
    ],
)
def test_what_no_edit_says_is_not(old: str, new: str, said: str) -> None:
    source = Source.from_bytes(Path("train.py"), SCRIPT.encode())
    edits: list[Edit] = [Insert(statement(source, "import"), ("import os",))]
    text = apply(source, edits)
    assert told(edits, source, text) == []
    (message,) = told(edits, source, text.replace(old, new))
    assert said in message


def test_an_argument_that_goes_beside_an_edit() -> None:
    source = Source.from_bytes(Path("train.py"), SCRIPT.encode())
    edits: list[Edit] = [replace(source, ".to(device)", "")]
    (message,) = told(edits, source, apply(source, edits).replace("        size,\n", ""))
    assert message.endswith("would be there, and no change accounts for it")


HELPERS = """\
import torch

def quiet():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

def seeding():
    torch.manual_seed(3)
    return quiet()

def through():
    return torch.device(seeding())

class Machine:
    def pick(self):
        self.asked = True
        return "cuda"
"""


@pytest.mark.parametrize(
    ("value", "lost"),
    [
        ("helpers.quiet()", None),
        ("helpers.seeding()", "torch.manual_seed(3)"),
        ("helpers.through()", "torch.manual_seed(3)"),
        ("torch.device(helpers.seeding())", "torch.manual_seed(3)"),
        ("helpers.Machine().pick()", "self.asked = True"),
    ],
)
def test_what_a_function_of_another_file_does_goes_with_no_call(value: str, lost: str | None) -> None:
    helpers = Version(Source.from_bytes(Path("helpers.py"), HELPERS.encode()))
    source = Source.from_bytes(Path("train.py"), f"import torch\nimport helpers\n\ndevice = {value}\n".encode())
    edits = (Substitute(source.tree.body[-1], ("device = accelerator.device",)),)
    result = Version(Source.from_bytes(source.path, apply(source, edits).encode()))
    changes = {source.path: [Change("AM101", 1, 1, "x", edits=edits)]}
    found = [v for v in violations([Version(source), helpers], {source.path: result}, changes) if v.code == "AM957"]
    assert [v.message.partition(" would no longer be called, and ")[2] for v in found] == (
        [f"`{lost}` with it"] if lost else []
    )


KEEPS = "class Small:\n    def __init__(self):\n        self.width = 4\n\ndef small():\n    return Small()\n\n"


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        ("net = small().cuda() if gpu else small()\n", "net = small()\n", False),
        ("if gpu:\n    net = small().cuda()\nelse:\n    net = small()\n", "net = small()\n", False),
        (
            "net = small().cuda() if gpu else small()\nif gpu:\n    x = x.cuda()\n",
            "net = small()\nif gpu:\n    x = x.cuda()\n",
            False,
        ),
        ("net = small().cuda() if gpu else small()\n", "net = small() if gpu else None\n", True),
        ("net = small().cuda() if gpu else small()\nsmall()\n", "net = small()\n", True),
        ("if gpu:\n    net = small().cuda()\nelse:\n    net = other\n", "net = other\n", True),
    ],
)
def test_of_two_ways_that_call_a_function_one_way_is_left(before: str, after: str, is_lost: bool) -> None:
    source = Source.from_bytes(Path("train.py"), (KEEPS + before).encode())
    assert any("no longer be called" in each for each in told([], source, KEEPS + after)) is is_lost


def test_the_other_way_of_a_choice_goes_where_it_is_as_the_first_became() -> None:
    before = "if gpu:\n    net = small()\n    net.cuda()\nelse:\n    net = {}()\nfit(net)\n"
    for other, is_accounted in (("small", True), ("large", False)):
        source = Source.from_bytes(Path("train.py"), before.format(other).encode())
        edits: list[Edit] = [Remove(statement(source, "net.cuda")), Unwrap(statement(source, "if gpu"))]
        assert (not told(edits, source, "net = small()\nfit(net)\n")) is is_accounted
