"""How deeply a program is nested, counted without recursion."""

from __future__ import annotations

import ast

from accel_migrate.flow.nodes import children


def depth(tree: ast.AST) -> int:
    """The number of levels of a tree; a chain of `elif` or of `+` adds one for each link."""
    level, count = [tree], 0
    while level:
        level = [child for node in level for child in children(node)]
        count += 1
    return count
