"""What names mean, and where they are bound."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from accel_migrate.flow.definitions import calls_at
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.version import Version
from accel_migrate.source import Source


def version(text: str) -> Version:
    return Version(Source.from_bytes(Path("a.py"), textwrap.dedent(text).encode()))


def unbound(text: str) -> list[str]:
    it = version(text)
    scopes = [scope for scope in it.names.scopes if scope.frame is scope]
    return [read.name for scope in scopes for read in it.assignment(scope).unbound()]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("print(x)\nx = 1\n", ["x"]),
        ("if a():\n    x = 1\nprint(x)\n", ["x"]),
        ("if a():\n    x = 1\nelse:\n    raise E\nprint(x)\n", []),
        ("x = 1\ndel x\nprint(x)\n", ["x"]),
        ("try:\n    x = 1\nexcept E as e:\n    pass\nprint(x)\n", ["x"]),
        ("try:\n    y = 1\nexcept E as e:\n    y = e\nprint(y)\n", []),
        ("e = 1\ntry:\n    pass\nexcept E as e:\n    pass\nprint(e)\n", ["e"]),
        ("while True:\n    x = 1\n    break\nprint(x)\n", []),
        ("for x in y():\n    pass\nprint(x)\n", ["x"]),
        ("if (n := f()):\n    print(n)\n", []),
        ("print([x for x in range(3)])\n", []),
        ("def f(a):\n    b = a\n    return b\n", []),
        ("def f():\n    print(x)\n    x = 1\nx = 2\n", ["x"]),
        ("def f():\n    global x\n    x = 1\nf()\nprint(x)\n", []),
        ("class A:\n    y = 1\n    z = y\n", []),
        ("x += 1\n", ["x"]),
        ("match v():\n    case [a, *b] if a:\n        print(a, b)\n", []),
        ("with f() as a, g(a) as b:\n    print(a, b)\n", []),
    ],
)
def test_names_that_may_not_be_bound(text: str, names: list[str]) -> None:
    assert unbound(text) == names


def test_a_method_does_not_see_the_names_of_its_class() -> None:
    it = version("y = 1\nclass A:\n    y = 2\n    def f(self):\n        return y\n")
    (read,) = [read for read in it.names.reads if read.name == "y"]
    assert it.names.resolve("y", read.scope) == Variable(it.names.root, "y")


def test_what_may_bind_anything() -> None:
    for text in ("from a import *\nprint(x)\n", "exec(t)\nprint(x)\n", "globals()['x'] = 1\nprint(x)\n"):
        it = version(text)
        assert it.names.binds_unknown and not any(it.names.is_undefined(read) for read in it.names.reads)


def test_calls_are_those_of_the_statement_handler_or_case_itself() -> None:
    text = b"if a():\n    b(c())\ntry:\n    d()\nexcept e():\n    f()\n"
    module = Module(Source.from_bytes(Path("s.py"), text))
    found = {(type(at).__name__, *[call.func.id for call in calls]) for at, calls in calls_at(module).items()}
    assert found == {("If", "a"), ("Expr", "b", "c"), ("Expr", "d"), ("ExceptHandler", "e"), ("Expr", "f")}
