"""What is asked of a wrapper that one process does not have, and what leans on one in ways that do not survive it.

`.module`, the model inside, and `.no_sync()`; parts that are wrapped, prefixes that come and go.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import ACCELERATOR, Replacement, Wrapping
from accel_migrate.analysis.values.provenance import NotMigrated, Place
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module, Scope, Variable

CODE = "AM702"


def unwrapped(
    module: Module, home: Scope, place: Place, held: frozenset[Variable], unheld: frozenset[Variable], wraps: bool
) -> Iterator[Replacement]:
    """Each `model.module` of a model that was wrapped: the model itself, always, or before `prepare` if that wraps it."""
    for node in module.walk(module.tree, ast.Attribute):
        variable = module.variable(node.value) if node.attr == "module" else None
        if variable is None or variable not in held | unheld:
            continue
        if isinstance(node.ctx, ast.Store) or _asked_first(module, node):
            continue
        parent = module.parents[node]
        if variable in held and isinstance(parent, ast.Attribute) and parent.attr == "state_dict":
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


def check_wrappings(roles: Roles, wrappings: list[Wrapping]) -> None:
    """NotMigrated where taking the wrappers away would change what the script does beside training."""
    for wrapping in wrappings:
        name = "DataParallel" if wrapping.is_data_parallel else "DistributedDataParallel"
        if is_part(roles, wrapping.module, wrapping.model) and not _only_wraps(roles, wrapping):
            part = wrapping.module.source.code(wrapping.model)
            raise NotMigrated(
                f"`{part}`, a part of a model, is wrapped in {name} by itself, and more depends on that wrapper; `prepare` takes "
                "whole models",
                (wrapping.module, wrapping.call),
            )
        line = _conditional_prefix(wrapping)
        if line is not None:
            raise NotMigrated(
                f"whether names of weights lose `module.` depends on the same condition as {name}, which goes; take the "
                "prefix off whenever it is there",
                (wrapping.module, line),
            )


def is_part(roles: Roles, module: Module, model: ast.expr) -> bool:
    """`model.features`, or `self.features` of a model's own class."""
    if not isinstance(model, ast.Attribute) or model.attr == "module":
        return False
    scope = module.scope(model)
    if isinstance(model.value, ast.Name) and model.value.id == scope.self_name and scope.owner_class is not None:
        return roles.project.is_in_torch_module(module, model)
    return bool(roles.role(module, model.value) & Role.MODEL)


def _only_wraps(roles: Roles, wrapping: Wrapping) -> bool:
    """Whether a part is put into a wrapper that nobody looks into: without it only names of weights are others."""
    part = getattr(wrapping.model, "attr", "")
    return wrapping.in_place and not any(
        node.attr == "module" and getattr(node.value, "attr", "") == part
        for module in roles.project.modules
        for node in module.walk(module.tree, ast.Attribute)
    )


def _conditional_prefix(wrapping: Wrapping) -> int | None:
    """The line of a text with `module.` in another branch of the `if` that wraps."""
    module = wrapping.module
    for parent in module.ancestors(wrapping.call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            return None
        if isinstance(parent, ast.If):
            inside = {part for s in (*parent.body, *parent.orelse) for part in module.walk(s)}
            for part in inside:
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and "module." in part.value:
                    return part.lineno
    return None
