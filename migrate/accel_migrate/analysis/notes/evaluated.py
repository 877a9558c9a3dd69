"""What the loops of an evaluation work out: figures of all data, whatever each process has of it."""

from __future__ import annotations

import ast

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.flow.scopes import Module, Variable


def is_evaluated(script: Script, training: Training, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression takes in what an evaluation loop binds or feeds, or what its function returns."""
    functions = {e.loop.function for e in training.evaluations} - {None}
    worked_out = {v for e in training.evaluations for v in _fed(e.loop.module, e.loop.statement)}
    for part in module.walk(node, ast.Call, ast.Name, ast.Attribute):
        if isinstance(part, ast.Call):
            target = script.roles.target(module, part)
            if target is not None and target.node in functions:
                return True
            continue
        variable = module.variable(part)
        if variable is None:
            continue
        if variable in worked_out:
            return True
        values = [binding.value for binding in module.bindings(variable) if binding.value is not None]
        if depth < 3 and any(is_evaluated(script, training, module, value, depth + 1) for value in values):
            return True
    return False


def _fed(module: Module, loop: ast.AST) -> set[Variable]:
    """What a loop assigns, adds to, or calls a method of in a statement of its own (`costs.append(...)`)."""
    found: set[Variable | None] = set()
    for node in module.walk(loop, ast.Assign, ast.AugAssign, ast.Expr):
        if isinstance(node, ast.Expr):
            call = node.value
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                found.add(module.variable(call.func.value))
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found |= {module.variable(part) for target in targets for part in module.walk(target, ast.Name, ast.Attribute)}
    return {variable for variable in found if variable is not None}
