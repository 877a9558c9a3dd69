"""Whether an expression only looks at things, so that it can go when nothing depends on its value any more."""

from __future__ import annotations

import ast

from accel_migrate.flow.nodes import walk

_ASKING = {
    "all", "any", "autocast", "device_count", "endswith", "enumerate", "get_rank", "get_world_size", "getattr", "hasattr",
    "is_available", "is_bf16_supported", "is_initialized", "is_main_process", "is_tensor", "isfile", "isinstance",
    "items", "keys", "len", "no_grad", "range", "startswith", "values", "zip",
}  # fmt: skip


def only_reads(node: ast.expr) -> bool:
    """Names, attributes, comparisons, and calls of functions that are known to ask and not to act."""
    for part in walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name not in _ASKING:
                return False
    return True
