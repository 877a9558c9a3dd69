"""The statements of a file one by one, each by its own text: of a compound statement that is its head."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accel_migrate.flow.nodes import unparse
from accel_migrate.source import Source


class Head(NamedTuple):
    node: ast.stmt | ast.ExceptHandler | ast.match_case
    text: str  # without any white space


def heads(source: Source) -> list[Head]:
    """Every statement in reading order."""
    found: list[Head] = []
    waiting: list[ast.AST] = list(reversed(source.tree.body))
    while waiting:
        node = waiting.pop()
        found.append(Head(node, head_text(source, node)))  # type: ignore[arg-type]
        inner = [child for name in _BLOCKS for child in getattr(node, name, ())] if type(node) in _COMPOUND else []
        waiting += reversed(inner)
    return found


def head_text(source: Source, node: ast.AST) -> str:
    """The text of a statement without its blocks."""
    kind = type(node)
    if kind not in _COMPOUND:
        return compact(source.code(node))  # type: ignore[arg-type]
    if isinstance(node, ast.If | ast.While):
        return compact(f"{'if' if kind is ast.If else 'while'} {source.code(node.test)}")
    if isinstance(node, ast.For | ast.AsyncFor):
        return compact(f"for {source.code(node.target)} in {source.code(node.iter)}")
    if isinstance(node, ast.With | ast.AsyncWith):
        return "with" + ",".join(unparse(item) for item in node.items).replace(" ", "")
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = "".join(f"@{unparse(each)}" for each in node.decorator_list)
        returns = unparse(node.returns) if node.returns is not None else ""
        return f"{decorators}def {node.name}({unparse(node.args)}){returns}"
    if isinstance(node, ast.ClassDef):
        parts = [unparse(each) for each in (*node.decorator_list, *node.bases, *node.keywords)]
        return f"class {node.name}({','.join(parts)})"
    if isinstance(node, ast.ExceptHandler):
        return f"except {unparse(node.type) if node.type is not None else ''} {node.name}"
    if isinstance(node, ast.match_case):
        return f"case {unparse(node.pattern)} {unparse(node.guard) if node.guard is not None else ''}"
    return f"match {unparse(node.subject)}" if isinstance(node, ast.Match) else "try"


def compact(text: str) -> str:
    """A text without white space and without the commas and brackets that only lay it out."""
    return "".join(text.split()).replace(",)", ")")


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_COMPOUND = frozenset(
    {
        ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef,
        ast.ClassDef, ast.Try, ast.TryStar, ast.Match, ast.match_case, ast.ExceptHandler,
    }
)  # fmt: skip
