"""Running figures of a training loop: each process adds up its own shard, so they are local to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, LoaderLoop
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module


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
