"""Whether a script was one process of many, or the only one, and what it does by that: silence print, refuse to run alone."""

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


_POSITION = 3  # of world_size in init_process_group(backend, init_method, timeout, world_size, ...)


def runs_on_several(modules: list[Module]) -> bool:
    """Whether a process group is initialised whose size is not the constant 1."""
    alone = any(_sets_one(module, node) for module in modules for node in module.walk(module.tree, ast.Assign))
    for module in modules:
        for call in module.calls:
            if module.qualified(call.func) == "torch.distributed.init_process_group":
                size = _size(call)
                if not (alone if size is None else _is_one(module, size)):
                    return True
    return False


def _size(call: ast.Call) -> ast.expr | None:
    """The size that is handed in; None where the environment says it."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "world_size"]
    return next(iter([*named, *call.args[_POSITION : _POSITION + 1]]), None)


def _is_one(module: Module, size: ast.expr) -> bool:
    """The constant 1, also by a name that is bound to nothing else."""
    variable = module.variable(size) if isinstance(size, ast.Name) else None
    values = [binding.value for binding in module.bindings(variable)] if variable is not None else [size]
    return bool(values) and all(isinstance(value, ast.Constant) and value.value == 1 for value in values)


def _sets_one(module: Module, node: ast.AST) -> bool:
    """`os.environ["WORLD_SIZE"] = "1"`, whatever the launcher says."""
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=owner, slice=ast.Constant(value="WORLD_SIZE"))], value=ast.Constant(value="1")
        ):
            return module.qualified(owner) == "os.environ" and not any(
                isinstance(above, ast.If | ast.Try) for above in module.ancestors(node)
            )
    return False
