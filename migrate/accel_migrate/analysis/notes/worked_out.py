"""Figures that loops work out: the running ones of a training, each process's own, and those of an evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.loops import Backward, LoaderLoop
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module, Variable


@dataclass(frozen=True, eq=False)
class Running:
    """A name that a training loop adds to, or sets from its loss."""

    module: Module
    loop: LoaderLoop
    name: str  # as it is written: `total_loss`, `self.running`
    summed: bool


def running_figures(loops: Iterable[LoaderLoop], backwards: Iterable[Backward]) -> Iterator[Running]:
    losses = {unparse(backward.loss) for backward in backwards}
    for loop in loops:
        if not loop.trains:
            continue
        for node in loop.module.walk(loop.statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                if isinstance(node.target, ast.Name | ast.Attribute) and not isinstance(node.value, ast.Constant):
                    yield Running(loop.module, loop, unparse(node.target), True)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                parts = loop.module.walk(node.value, ast.Name, ast.Attribute)
                if any(unparse(part) in losses for part in parts):
                    yield Running(loop.module, loop, node.targets[0].id, False)
    for loss in losses:
        for loop in loops:
            if loop.trains and loss.isidentifier():
                yield Running(loop.module, loop, loss, False)


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
