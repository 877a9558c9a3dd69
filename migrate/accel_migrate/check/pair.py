"""One file before and after, with the changes between them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accel_migrate.flow.scopes import Scope
from accel_migrate.flow.version import Version
from accel_migrate.plan import Change


@dataclass(frozen=True, eq=False)
class Pair:
    """A file of a project before and after the changes."""

    path: Path
    before: Version
    after: Version
    changes: tuple[Change, ...] = ()

    @property
    def is_changed(self) -> bool:
        return self.before is not self.after

    @cached_property
    def functions_before(self) -> dict[str, list[str]]:
        """The text of every function by its path: one that is the same needs no second look."""
        return _functions(self.before)

    def is_new(self, scope: Scope) -> bool:
        """Whether a scope of the rewritten file is not, word for word, in the original."""
        if isinstance(scope.node, ast.Module):
            return True
        return _text(self.after, scope.node) not in self.functions_before.get(scope.path, ())


def _functions(program: Version) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for scope in program.names.scopes:
        if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(scope.path, []).append(_text(program, scope.node))
    return found


def _text(program: Version, node: ast.AST) -> str:
    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno is not None
    return "".join(program.lines[node.lineno - 1 : node.end_lineno])
