"""Pretrained models whose pooled output nobody reads: the layer that makes it gets no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.program.scopes import Module, Variable
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.made_of import Part, made_of
from accel_migrate.analysis.values.roles import Roles

_POOLING = {"BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "AlbertModel", "ErnieModel"}
_LIBRARIES = ("transformers", "pytorch_transformers")


def poolers_unread(roles: Roles, graph: CallGraph, model: Variable) -> Iterator[Part]:
    """Parts of a model that pool, where every call of them is read for its sequence alone."""
    for owner in made_of(roles, graph, model):
        module = owner.module
        if not isinstance(owner.node, ast.ClassDef) or any(_freezes(node) for node in module.walk(module.tree)):
            continue
        for variable, bindings in module.attribute_bindings.items():
            if variable.scope.node is not owner.node or not any(_pools(module, b.value) for b in bindings):
                continue
            calls = [call for call in module.calls if module.variable(call.func) == variable]
            if calls and all(_sequence_alone(module, call) for call in calls):
                yield Part(module, owner.node, variable.name.removeprefix("self."), bindings[0].statement.lineno)


def _pools(module: Module, made: ast.expr | None) -> bool:
    """`BertModel(...)` or `BertModel.from_pretrained(...)`, with the layer that pools."""
    if not isinstance(made, ast.Call) or any(keyword.arg in ("add_pooling_layer", None) for keyword in made.keywords):
        return False
    parts = (module.qualified(made.func) or "").removesuffix(".from_pretrained").split(".")
    return parts[0] in _LIBRARIES and parts[-1] in _POOLING


def _sequence_alone(module: Module, call: ast.Call) -> bool:
    parent = module.parents[call]
    if not isinstance(parent, ast.Assign) or parent.value is not call or len(parent.targets) != 1:
        return _takes_sequence(parent)
    target = parent.targets[0]
    if isinstance(target, ast.Tuple):
        return len(target.elts) == 2 and _is_never_read(module, target.elts[1])
    variable = module.variable(target) if isinstance(target, ast.Name) else None
    reads = [
        node
        for node in module.walk(module.scope(call).node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and module.variable(node) == variable
    ]
    return variable is not None and bool(reads) and all(_takes_sequence(module.parents[node]) for node in reads)


def _takes_sequence(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "last_hidden_state"
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in (0, "last_hidden_state")
    )


def _is_never_read(module: Module, target: ast.expr) -> bool:
    variable = module.variable(target) if isinstance(target, ast.Name) else None
    return variable is not None and not any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and module.variable(node) == variable
        for node in module.walk(module.tree)
    )


def _freezes(node: ast.AST) -> bool:
    """`weight.requires_grad = False`, `requires_grad_(...)`: it may be the pooler's."""
    if isinstance(node, ast.Attribute) and node.attr == "requires_grad_":
        return True
    told = isinstance(node, ast.Assign) and any(
        getattr(target, "attr", "") == "requires_grad" for target in node.targets
    )
    return told and not (isinstance(node.value, ast.Constant) and node.value.value is True)  # type: ignore[attr-defined]
