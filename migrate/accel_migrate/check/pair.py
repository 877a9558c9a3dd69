"""One file before and after, with what both programs say about names and order: worked out when it is asked for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from accel_migrate.flow.assignment import Assignment
from accel_migrate.flow.definitions import Names, Scope
from accel_migrate.plan import Change
from accel_migrate.source import Source


class Program:
    """One version of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._assignments: dict[Scope, Assignment] = {}

    @property
    def tree(self) -> ast.Module:
        return self.source.tree

    @cached_property
    def names(self) -> Names:
        return Names(self.source.tree)

    def assignment(self, scope: Scope) -> Assignment:
        """Definite assignment in a scope of this file."""
        while scope.runs_in_place and scope.parent is not None:
            scope = scope.parent
        if scope not in self._assignments:
            self._assignments[scope] = Assignment(self.names, scope)
        return self._assignments[scope]

    def code(self, node: ast.AST) -> str:
        """The first line of a node's text, as a message quotes it."""
        return self.lines[node.lineno - 1].strip() if hasattr(node, "lineno") else ""

    @cached_property
    def holder_of(self) -> dict[ast.AST, ast.AST]:
        """The compound statement, handler or case that holds each statement of the file."""
        return {child: outer for outer, block in self._blocks for child in block}

    @cached_property
    def block_of(self) -> dict[ast.AST, list[ast.stmt]]:
        """The list of statements that each stands in."""
        return {child: block for _, block in self._blocks for child in block}

    @cached_property
    def _blocks(self) -> list[tuple[ast.AST, list[ast.stmt]]]:
        found: list[tuple[ast.AST, list[ast.stmt]]] = []
        waiting: list[ast.AST] = [self.tree]
        for node in waiting:
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block:
                    found.append((node, block))
                    waiting += block
        return found

    @cached_property
    def lines(self) -> list[str]:
        starts = [*self.source.line_starts, len(self.source.text)]
        return [self.source.text[start:end] for start, end in pairwise(starts)]


@dataclass(frozen=True, eq=False)
class Pair:
    """A file of a project before and after the changes."""

    path: Path
    before: Program
    after: Program
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


def _functions(program: Program) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for scope in program.names.scopes:
        if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(scope.path, []).append(_text(program, scope.node))
    return found


def _text(program: Program, node: ast.AST) -> str:
    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno is not None
    return "".join(program.lines[node.lineno - 1 : node.end_lineno])
