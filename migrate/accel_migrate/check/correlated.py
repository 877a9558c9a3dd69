"""A name that is bound under a condition and read under the same one: bound, though no single test says so."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

from accel_migrate.flow.definitions import Read
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Variable
from accel_migrate.flow.version import Version


def is_bound_under_its_condition(program: Version, read: Read, variable: Variable) -> bool:
    """Whether an `if` above, in the same block, binds the name under conditions that also guard the read."""
    path = _path(program, read.statement)
    for index, inner in enumerate(path):
        block = program.block_of.get(inner)
        if block is None:
            continue
        position = next(i for i, each in enumerate(block) if each is inner)
        holds = _held(path[: index + 1])
        for above in range(position - 1, -1, -1):
            statement = block[above]
            if isinstance(statement, ast.If) and _atoms(statement.test) <= holds and _binds(statement, variable.name):
                tested = {n.id for n in walk(statement.test) if isinstance(n, ast.Name)}
                return not any(_bound_names(each) & tested for each in block[above:position])
    return False


def _path(program: Version, statement: ast.AST) -> list[ast.AST]:
    """A statement and those around it, from the inside."""
    found = [statement]
    while (outer := program.holder_of.get(found[-1])) is not None:
        found.append(outer)
    return found


def _held(path: Sequence[ast.AST]) -> set[str]:
    """The conditions that hold inside the first of these statements, by the tests of those around it."""
    found: set[str] = set()
    for inner, outer in pairwise(path):
        if isinstance(outer, ast.If) and any(each is inner for each in outer.body):
            found |= _atoms(outer.test)
    return found


def _atoms(test: ast.expr) -> set[str]:
    """The parts of a conjunction, each as text."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return {atom for part in test.values for atom in _atoms(part)}
    return {ast.dump(test)}


def _binds(statement: ast.If, name: str) -> bool:
    """Whether the block of an `if` binds a name for certain: by a statement of its own that always runs."""
    return any(name in _bound_names(each) and isinstance(each, ast.Assign | ast.AnnAssign) for each in statement.body)


def _bound_names(statement: ast.AST) -> set[str]:
    return {n.id for n in walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
