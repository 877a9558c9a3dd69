"""Loaders that are kept in a dictionary by phase: `for batch in dataloaders[phase]`.

The loader that is trained on is sharded. The others stay whole: what one loop sums up over them is a figure over all
of their data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.trainings.phases import conditions
from accel_migrate.analysis.values.loops import Backward, LoaderLoop
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module, Variable


@dataclass(frozen=True)
class Entry:
    """`variable[key]` is trained on; the key as it is written in the file of the loop."""

    variable: Variable
    key: str


def is_entry(roles: Roles, module: Module, loader: ast.expr) -> bool:
    return isinstance(loader, ast.Subscript) and bool(roles.role(module, loader.value) & Role.LOADERS)


def is_chosen(roles: Roles, loop: LoaderLoop) -> bool:
    """Whether a training loop reads another loader in each phase: `dataloaders[phase]`."""
    chosen = isinstance(loop.loader, ast.Subscript) and not _is_fixed(roles, loop.module, loop.loader.slice)
    return loop.trains and chosen and is_entry(roles, loop.module, loop.loader)


def trained_entries(roles: Roles, backwards: list[Backward], loops: list[LoaderLoop]) -> Iterator[Entry]:
    """The entry that each training loop over a dictionary of loaders trains on, where that can be told."""
    for loop in loops:
        if not loop.trains or not is_entry(roles, loop.module, loop.loader):
            continue
        assert isinstance(loop.loader, ast.Subscript)
        variable = loop.module.variable(loop.loader.value)
        key = _key(roles, loop, loop.loader.slice, backwards)
        if variable is not None and key is not None and _is_fixed(roles, variable.scope.module, key):
            yield Entry(variable, loop.module.source.code(key))


def _is_fixed(roles: Roles, module: Module, key: ast.expr) -> bool:
    """A constant, or a member of a class: `Phase.TRAIN`."""
    if not isinstance(key, ast.Attribute):
        return isinstance(key, ast.Constant)
    owner = roles.project.definition(module, key.value)
    return owner is not None and isinstance(owner.node, ast.ClassDef)


def _key(roles: Roles, loop: LoaderLoop, index: ast.expr, backwards: list[Backward]) -> ast.expr | None:
    """The constant that the loop is indexed by, or that its index is compared with before the backward pass."""
    if _is_fixed(roles, loop.module, index):
        return index
    tests = [test for backward in backwards for test in conditions(loop, backward)]
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            asked, answer = test.left, test.comparators[0]
            if _is_fixed(roles, loop.module, answer) and unparse(asked) == unparse(index):
                return answer
    return None
