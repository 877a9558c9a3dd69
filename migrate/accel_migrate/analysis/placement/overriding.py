"""Statements that may give any name another value: what is known of a name above them does not hold below."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import calls_method, is_call_of
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import may_follow


def overrides(graph: CallGraph, module: Module, statement: ast.stmt) -> bool:
    """`exec(open("configurator.py").read())`, `globals()[key] = value`: any name may have another value after it."""
    return _runs(graph, module, statement, _setting_any_name)


def names_gpus(graph: CallGraph, module: Module, statement: ast.stmt) -> bool:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = gpu`: CUDA reads it once, when the Accelerator takes its device."""
    return _runs(graph, module, statement, naming_gpus)


def _runs(
    graph: CallGraph, module: Module, statement: ast.stmt, wanted: Callable[[Module], list[ast.Call | ast.Assign]]
) -> bool:
    """Whether a statement, or a function that it calls, holds one of some calls and assignments."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if not any(wanted(each) for each in graph.roles.project.modules):
        return False
    called = [(graph.roles.project.module_of(f), f) for f in graph.reached_from(statement, module)]
    return any(owner.holds(part, node) for owner, part in [(module, statement), *called] for node in wanted(owner))


@once
def _setting_any_name(module: Module) -> list[ast.Call | ast.Assign]:
    return [node for node in module.walk(module.tree, ast.Call, ast.Assign) if _sets_any_name(module, node)]


@once
def naming_gpus(module: Module) -> list[ast.Call | ast.Assign]:
    """What sets CUDA_VISIBLE_DEVICES."""
    return [node for node in module.walk(module.tree, ast.Call, ast.Assign) if named_gpus(module, node) is not None]


def named_gpus(module: Module, node: ast.AST) -> ast.expr | None:
    """What CUDA_VISIBLE_DEVICES is set to."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        holder, key, value = node.targets[0].value, node.targets[0].slice, node.value
        if module.qualified(holder) != "os.environ":
            return None
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        key, value = node.args
        if module.qualified(node.func) not in ("os.environ.setdefault", "os.putenv"):
            return None
    else:
        return None
    return value if isinstance(key, ast.Constant) and key.value == "CUDA_VISIBLE_DEVICES" else None


def _sets_any_name(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        if is_call_of(node, "exec", "setattr") and node.args:
            known = module.resolve(node.func.id, module.scope(node)) is not None
            return not known and not (node.func.id == "setattr" and _is_instance(module, node.args[0]))
        changes = calls_method(node, "update")
        return changes and isinstance(node.func, ast.Attribute) and _is_namespace(module, node.func.value)
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Subscript) and _is_namespace(module, target.value) for target in targets)


def _is_namespace(module: Module, node: ast.expr) -> bool:
    """`globals()`, `vars(args)`, `args.__dict__`; not those of an instance, whose attributes are its own."""
    value = module.only_value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, ast.Call | ast.Attribute):
        return _is_namespace(module, value)
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__" and not _is_instance(module, node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    own = bool(node.args) and _is_instance(module, node.args[0])
    return node.func.id in ("globals", "vars", "locals") and not own


def _is_instance(module: Module, node: ast.expr) -> bool:
    """Whether a node is a method's own instance, or a part of it."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == module.scope(node).self_name


def is_overridden(graph: CallGraph, variable: Variable) -> bool:
    """Whether a statement that may set any name follows one that binds the variable, in the same scope."""
    module = variable.scope.module
    bindings = module.bindings(variable)
    if variable.scope.is_class or not bindings:
        return False
    body: list[ast.stmt] = getattr(variable.scope.node, "body", [])
    return any(
        any(may_follow(module, binding.statement, statement) for binding in bindings)
        for statement in body
        if overrides(graph, module, statement)
    )
