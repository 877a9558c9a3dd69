"""What a script does because it is one process of many, or the only one: it silences print, or refuses to run alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Replacement
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module

_SETS_UP = (ast.FunctionDef, ast.Pass, ast.Import)
_PRINTS = {"builtins.print", "__builtin__.print", "__builtins__.print"}


def silenced_prints(module: Module, code: str) -> Iterator[Replacement]:
    """`if rank != 0: builtins.print = nothing`: the Accelerator prints once, and no process is silenced as a whole."""
    for node in module.walk(module.tree, ast.If):
        if not node.orelse and all(isinstance(s, _SETS_UP) or _sets_print(module, s) for s in node.body):
            if any(_sets_print(module, statement) for statement in node.body):
                yield Replacement(code, module, node, None, "the Accelerator prints once on each machine")


def _sets_print(module: Module, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Attribute) and (module.qualified(target) or unparse(target)) in _PRINTS
        for target in statement.targets
    )


def refusals_alone(module: Module, function: ast.AST, flag: str, code: str) -> Iterator[Replacement]:
    """`raise` where a script is not distributed: one process is enough for an Accelerator."""
    for node in module.walk(function):
        for statement in node.orelse if isinstance(node, ast.If) and unparse(node.test) == flag else []:
            for inner in module.walk(statement):
                if isinstance(inner, ast.Raise):
                    yield Replacement(code, module, inner, None, "one process may train as well")
