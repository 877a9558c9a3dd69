"""Code under `if __name__ == "__main__":`, which does not run when its file is imported."""

from __future__ import annotations

import ast

from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Module


def asks_for_name(test: ast.expr) -> bool:
    """Whether a condition asks how the file is run; the name of a class, `type(net).__name__`, says nothing of that."""
    return any(type(node) is ast.Name and node.id == "__name__" for node in walk(test))


def under_main(module: Module, node: ast.AST) -> bool:
    """Whether a node stands under such a condition, itself or with the function it is in."""
    return any(type(above) is ast.If and asks_for_name(above.test) for above in module.ancestors(node))
