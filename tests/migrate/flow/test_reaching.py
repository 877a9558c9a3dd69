"""Which bindings a name may hold where it is read."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source


def found(text: str) -> list[str]:
    """What binds the `x` of the last call of `show`, each with its line."""
    module = Module(Source.from_bytes(Path("a.py"), textwrap.dedent(text).encode()))
    call = [call for call in module.calls if ast.unparse(call.func) == "show"][-1]
    (name,) = [node for node in module.walk(call, ast.Name) if node.id == "x"]
    return [f"{ast.unparse(binding.target)}:{binding.statement.lineno}" for binding in reaching(module, name)]


def test_an_attribute_may_hold_all_that_is_bound_to_it_and_a_call_nothing():
    module = Module(Source.from_bytes(Path("a.py"), b"args.x = 1\nshow(args.x)\nargs.x = 2\nargs = ask()\n"))
    (read,) = module.walk(module.calls[0], ast.Attribute)
    assert [ast.unparse(binding.statement) for binding in reaching(module, read)] == ["args.x = 1", "args.x = 2"]
    assert reaching(module, module.calls[0]) == []


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("x = 1\nx = 2\nshow(x)\n", ["x:2"]),
        ("x = 1\nif a():\n    x = 2\nshow(x)\n", ["x:3", "x:1"]),
        ("if a():\n    x = 1\nelse:\n    x = 2\nshow(x)\n", ["x:4", "x:2"]),
        ("x = 1\nif a():\n    x = 2\n    raise E\nshow(x)\n", ["x:1"]),
        ("x = 1\nfor i in b():\n    show(x)\n    x = 3\n", ["x:1", "x:4"]),
        ("x = 1\nfor i in b():\n    x = show(x)\n", ["x:1"]),
        ("x = 1\nfor x in b():\n    show(x)\n", ["x:2"]),
        ("x = 1\nx += 2\nshow(x)\n", ["x:2", "x:1"]),
        ("try:\n    x = 1\n    x = f()\nexcept E:\n    show(x)\n", ["x:3", "x:2"]),
        ("x = 1\nwith open(f) as x:\n    show(x)\n", ["x:2"]),
        ("def f(x):\n    if a():\n        x = 2\n    show(x)\n", ["x:3", "x:1"]),
        ("x = 1\ndef f():\n    show(x)\nx = 2\n", ["x:1", "x:4"]),  # whenever it is called
        ("x = 1\nx = 2\ny = [show(x) for i in b()]\n", ["x:2"]),
        ("x = 1\ny = map(str, (show(x) for i in b()))\nx = 2\n", ["x:1", "x:3"]),
        ("y = [show(x) for x in b()]\n", ["x:1"]),
        ("y = lambda x: show(x)\n", ["x:1"]),
        ("raise E\nx = 1\nshow(x)\n", ["x:2"]),
    ],
)
def test_the_bindings_that_a_read_may_see(text: str, bound: list[str]) -> None:
    assert found(text) == bound
