"""What is asked of a wrapper that one process does not have: `.module`, the model inside, and `.no_sync()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import ACCELERATOR, Replacement
from accel_migrate.analysis.values.provenance import Place
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module, Scope, Variable

CODE = "AM702"


def unwrapped(
    module: Module, home: Scope, place: Place, aliases: frozenset[Variable], wraps: bool
) -> Iterator[Replacement]:
    """Each `model.module` of a prepared model, which is the model itself: always, or before `prepare` if that wraps it."""
    for node in module.walk(module.tree, ast.Attribute):
        if node.attr != "module" or module.variable(node.value) not in aliases:
            continue
        if isinstance(node.ctx, ast.Store) or _asked_first(module, node):
            continue
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr == "state_dict":
            either = _either_state(module, node)
            if either is not None:
                text = f"{ACCELERATOR}.get_state_dict({module.source.code(node.value)})"
                yield Replacement(CODE, module, either, text, "the same on one process and on many")
            continue  # saving collects the state
        whole = _choice(module, node)
        text = module.source.code(node.value)
        if not wraps and not _under_parameter(module, node):
            yield Replacement(CODE, module, whole, text, "there is no wrapper")
        elif module is place.module and module.scope(node) is home and not place.comes_before(node):
            yield Replacement(CODE, module, whole, text, "there is no wrapper before `prepare`")
        else:
            yield Replacement(
                CODE,
                module,
                whole,
                f"{ACCELERATOR}.unwrap_model({text})",
                "there is a wrapper on several processes only" if wraps else "the model itself",
            )


def deferred(module: Module, aliases: frozenset[Variable]) -> Iterator[Replacement]:
    """Each `model.no_sync()` of a model that was wrapped."""
    for call in module.calls:
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "no_sync" and not call.args:
            if module.variable(function.value) in aliases:
                text = f"{ACCELERATOR}.no_sync({module.source.code(function.value)})"
                yield Replacement(CODE, module, call, text, "gradients are exchanged later, on any number of processes")


def _choice(module: Module, node: ast.Attribute) -> ast.expr:
    """`model.module if ddp else model` as a whole."""
    parent = module.parents[node]
    if isinstance(parent, ast.IfExp) and parent.test is not node:
        other = parent.orelse if parent.body is node else parent.body
        if unparse(other) == unparse(node.value):
            return parent
    return node


def _under_parameter(module: Module, node: ast.Attribute) -> bool:
    """`if several: net = net.module`: with the statement its condition would go, and leave a parameter that nobody reads."""
    statement = module.statement(node)
    above = module.parents[statement]
    if not isinstance(statement, ast.Assign) or statement.value is not node or not isinstance(above, ast.If):
        return False
    if [unparse(target) for target in statement.targets] != [unparse(node.value)]:
        return False
    asked = [v for name in module.walk(above.test, ast.Name) if (v := module.variable(name)) is not None]
    return any(module.is_parameter(variable) for variable in asked)


def _either_state(module: Module, node: ast.Attribute) -> ast.IfExp | None:
    """`model.module.state_dict() if ddp else model.state_dict()`."""
    call = module.parents[module.parents[node]]
    choice = module.parents[call]
    if not isinstance(choice, ast.IfExp) or choice.test is call:
        return None
    other = choice.orelse if choice.body is call else choice.body
    return choice if unparse(other) == f"{unparse(node.value)}.state_dict()" else None


def _asked_first(module: Module, node: ast.Attribute) -> bool:
    """Under `if hasattr(model, "module"):` it is right on one process and on many."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp):
            test = unparse(parent.test)
            if "'module'" in test or "DataParallel" in test:
                return True
        if isinstance(parent, ast.FunctionDef | ast.ClassDef):
            break
    return False
