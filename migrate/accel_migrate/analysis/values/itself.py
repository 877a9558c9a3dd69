"""The object that an expression is, behind calls that give it back: `model.cpu().eval()` is `model`."""

from __future__ import annotations

import ast

ITSELF = {
    "to", "cpu", "cuda", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "share_memory",
}  # fmt: skip


def itself(node: ast.expr) -> ast.expr:
    """The model of a chain of calls that return the model; anything else is what it is."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ITSELF:
        node = node.func.value
    return node
