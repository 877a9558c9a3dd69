"""Going through trees gives what `ast` gives, but for the nodes that say whether a name is read or set."""

from __future__ import annotations

import ast

import pytest
from accel_migrate.flow.nodes import children, unparse, walk

from tests.cases import all_cases

CONTEXTS = (ast.Load, ast.Store, ast.Del)
EVERYTHING = """
import a.b as c, d
from . import e
@decorated(x=1)
class K(Base, metaclass=M):
    y: int = 1
async def f(a, /, b: int = 2, *c, d, e=3, **g) -> str:
    global h
    async with w as (p, q), r:
        await s
    async for i in t: yield
    return {**u, 1: [*v]}, lambda z=1: z, x[1:2, ...]
try:
    del o.n, m[0]
    assert a if b and not c else d < e <= f, f"{a!r:>{b}}"
except* (E, F) as g: raise H from I
match subject:
    case {"k": 1, **rest} | K(1, x=2) as name if guard: pass
    case [1, *_] | None: a = b = [(c := d) for d in e if f for g in h]
while 1: a += ~b; break
else: nonlocal_ = {x for x in y}; z = {k: v for k, v in w}; 1 .real; (a.b.c).d
f(*a, (b, c), k=lambda: 1, **d)[e](u"f", "\\n", 1.5, 1e999, -1, None, (g for g in h))[1, 2][...][i:][()].j(k=(l := m))
"""


def sources() -> list[str]:
    scripts = [case.script("before") for case in all_cases() if not case.is_project]
    return [EVERYTHING, *[path.read_text() for path in scripts[::10]]]


@pytest.mark.parametrize("text", sources())
def test_the_same_nodes_in_the_same_order(text: str) -> None:
    tree = ast.parse(text)
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, CONTEXTS)]
    for node in walk(tree):
        assert children(node) == [each for each in ast.iter_child_nodes(node) if not isinstance(each, CONTEXTS)]
        if isinstance(node, ast.expr):
            assert unparse(node) == ast.unparse(node)
