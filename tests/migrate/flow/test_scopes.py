"""Names and places of one file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.source import Source

EVERYTHING = """
from __future__ import annotations
import torch as t, os.path
from torch import nn, optim as o
lib = t.nn


@decorated(by=1)
async def f(a: int, /, b=2, *c: str, d: float = 3, **e) -> dict[str, int]:
    global counter
    counter += 1
    async with a as handle:
        yield handle
    return {k: v for k, v in e.items() if v}


class C(Base, metaclass=Meta):
    x: int = 1

    def method(self, y=lambda z, w=1: z + w):
        self.y = y
        try:
            del self.x
        except* ValueError as error:
            raise
        finally:
            nonlocal_ = [i for j in range(3) for i in range(j) if i]


match command:
    case {"key": [first, *rest], **others} if first:
        print(f"{first!r:>{rest}}")
    case C(x=0) | None:
        pass
while (n := next(it)) and not done:
    break
else:
    a, (b, *c) = n
"""


def module(text: str) -> Module:
    return Module(Source.from_bytes(Path("script.py"), text.encode()))


def test_every_node_has_a_parent_and_a_scope():
    read = module(EVERYTHING)
    grammar = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.Module)
    for node in ast.walk(read.tree):
        if not isinstance(node, grammar):
            assert node in read.parents, ast.dump(node)
            assert read.scope(node) is not None


def test_walk_gives_a_node_and_all_below_it():
    read = module(EVERYTHING)
    grammar = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
    for node in ast.walk(read.tree):
        if not isinstance(node, grammar):
            expected = {n for n in ast.walk(node) if not isinstance(n, grammar)}
            assert {n for n in read.walk(node) if not isinstance(n, grammar)} == expected


@pytest.mark.parametrize(
    ("text", "dotted"),
    [
        ("import torch\ntorch.save", "torch.save"),
        ("import torch as t\nt.optim.SGD", "torch.optim.SGD"),
        ("from torch import optim\noptim.SGD", "torch.optim.SGD"),
        ("import torch\nnn = torch.nn\nnn.Linear", "torch.nn.Linear"),
        ("import torch.nn.functional as F\nF.relu", "torch.nn.functional.relu"),
        ("from .engine import train\ntrain", ".engine.train"),
        ("import torch\ntorch = fake()\ntorch.save", None),
        ("save = 1\nsave", None),
    ],
)
def test_imported_names_are_followed_to_what_they_name(text, dotted):
    read = module(text)
    last = read.tree.body[-1]
    assert read.qualified(last.value) == dotted


def test_a_parameter_shadows_an_import():
    read = module("import data\ndef f(data):\n    return data.x\n")
    (returned,) = [node for node in ast.walk(read.tree) if isinstance(node, ast.Return)]
    assert read.qualified(returned.value) is None


def test_attributes_of_self_belong_to_the_class():
    read = module("class T:\n    def a(self):\n        self.m = 1\n    def b(this):\n        return this.m\n")
    first, second = [node for node in ast.walk(read.tree) if isinstance(node, ast.Attribute)]
    assert read.variable(first) == read.variable(second)


def test_global_names_bind_at_module_level():
    read = module("x = 1\ndef f():\n    global x\n    x = 2\n")
    assert len(read.root.bindings["x"]) == 2


def test_reads_of_a_variable_are_those_of_its_scope_in_reading_order() -> None:
    module = Module(
        Source.from_bytes(Path("s.py"), b"n = 1\nprint(n)\n\ndef f(n):\n    n += 1\n    return n\n\nn = n + 1\n")
    )
    outer, inner = Variable(module.root, "n"), Variable(next(iter(module.functions.values())), "n")
    assert [node.lineno for node in module.reads(outer)] == [2, 8]
    assert [node.lineno for node in module.reads(inner)] == [6]
    assert [node.lineno for node in module.named[outer]] == [1, 2, 8, 8]


def test_what_is_set_under_a_key_belongs_to_the_variable_that_keeps_it() -> None:
    text = b"class A:\n    def f(self, x):\n        self.kept[0] = x\n        self.kept[1], y = x, x\nheld = {}\nheld['a'] = 1\n"
    module = Module(Source.from_bytes(Path("s.py"), text))
    found = {variable.name: [value.lineno for value in values] for variable, values in module.items_set.items()}
    assert found == {"self.kept": [3], "held": [6]}


def test_finds_calls_by_the_full_name_of_what_is_imported_by_method_and_by_name():
    text = (
        "import torch as t\nfrom os import mkdir as make\nopen(p)\np.mkdir()\nmake(p)\nt.save(m, p)\nmake(q)\nm()()\n"
    )
    module = Module(Source.from_bytes(Path("x.py"), text.encode()))
    found = module.calls_of({"os.mkdir", ".mkdir", "open"})
    assert [module.source.code(call) for call in found] == ["open(p)", "p.mkdir()", "make(p)", "make(q)"]
    assert module.calls_of(("mkdir", "save", "make")) == []
    assert list(module.imported_calls) == ["os.mkdir", "torch.save"]


def test_what_a_star_import_brings_changes_what_names_mean():
    text = "from helpers import *\nkeep(model)\n"
    module = Module(Source.from_bytes(Path("x.py"), text.encode()))
    call = module.calls[0]
    assert module.qualified(call.func) is None and module.variable(call.func) is None
    (binding,) = module.root.bindings["*"]
    module.bind_import("keep", "torch.save", module.root, binding)
    module.forget()
    assert module.variable(call.func) == Variable(module.root, "keep")
    assert module.calls_of(("torch.save",)) == [call]


def test_a_loop_of_another_file_holds_nothing_of_this_one() -> None:
    one, other = (Module(Source.from_bytes(Path(name), b"for x in y:\n    next(x)\n")) for name in ("a.py", "b.py"))
    assert one.holds(one.tree.body[0], one.calls[0])
    assert not one.holds(other.tree.body[0], one.calls[0])
    assert not one.holds(one.tree.body[0], other.calls[0])
