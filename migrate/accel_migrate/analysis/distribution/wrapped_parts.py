"""What leans on a wrapper of the model in ways that do not survive it: parts that are wrapped, prefixes that come and go."""

from __future__ import annotations

import ast

from accel_migrate.analysis.distribution.replacements import Wrapping
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.scopes import Module


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
        isinstance(node, ast.Attribute) and node.attr == "module" and getattr(node.value, "attr", "") == part
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
