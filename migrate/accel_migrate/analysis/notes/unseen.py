"""A place of a script whose code, or whose value, the analysis cannot read."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.flow.scopes import Module


@dataclass(frozen=True, eq=False)
class Unseen:
    module: Module
    node: ast.AST  # where it is used
    name: str  # as people know it: `build()`
