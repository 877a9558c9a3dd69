"""One version of a file, with what it says about names and order: worked out when it is asked for, and once."""

from __future__ import annotations

import ast
from functools import cached_property
from itertools import pairwise

from accel_migrate.flow.assignment import Assignment
from accel_migrate.flow.definitions import Names, names_of
from accel_migrate.flow.nodes import BLOCKS
from accel_migrate.flow.scopes import Module, Scope
from accel_migrate.source import Source


class Version:
    """One version of a file."""

    def __init__(self, source: Source, module: Module | None = None) -> None:
        """`module` is that of the source, where it has been read already."""
        self.source = source
        if module is not None:
            self.module = module
        self._assignments: dict[Scope, Assignment] = {}

    @property
    def tree(self) -> ast.Module:
        return self.source.tree

    @cached_property
    def module(self) -> Module:
        return Module(self.source)

    @property
    def names(self) -> Names:
        return names_of(self.module)

    def assignment(self, scope: Scope) -> Assignment:
        """Definite assignment in a scope of this file."""
        scope = scope.frame
        if scope not in self._assignments:
            self._assignments[scope] = Assignment(self.names, scope)
        return self._assignments[scope]

    def code(self, node: ast.AST) -> str:
        """The first line of a node's text, as a message quotes it."""
        return self.lines[node.lineno - 1].strip() if hasattr(node, "lineno") else ""

    @cached_property
    def holder_of(self) -> dict[ast.AST, ast.AST]:
        """The compound statement, handler or case that holds each statement of the file."""
        return {child: outer for outer, block in self.blocks for child in block}

    @cached_property
    def block_of(self) -> dict[ast.AST, list[ast.stmt]]:
        """The list of statements that each stands in."""
        return {child: block for _, block in self.blocks for child in block}

    @cached_property
    def blocks(self) -> list[tuple[ast.AST, list[ast.stmt]]]:
        """Every list of statements, with the module, statement, handler or case that holds it."""
        found: list[tuple[ast.AST, list[ast.stmt]]] = []
        waiting: list[ast.AST] = [self.tree]
        for node in waiting:
            for name in BLOCKS[type(node)]:
                block = getattr(node, name, None)
                if block:
                    found.append((node, block))
                    waiting += block
        return found

    @cached_property
    def lines(self) -> list[str]:
        starts = [*self.source.line_starts, len(self.source.text)]
        return [self.source.text[start:end] for start, end in pairwise(starts)]
