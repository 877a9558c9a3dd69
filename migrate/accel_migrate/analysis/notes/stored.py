"""What a training stores at the places of its samples: a process stores those of its shard alone, and the rest stays as it was.

Silent where a loss is computed from it, of which `kept` speaks, and where the place is the number of a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.kept import find_kept
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.flow.nodes import is_call_of
from accel_migrate.flow.scopes import Module, Variable


def stored_at_samples(script: Script, training: Training) -> list[tuple[Module, ast.expr]]:
    """`scores[index] = out` for each batch of a loader that is sharded."""
    kept = {each.statement for each in find_kept(script.graph, training.local, training.backwards)}
    return [
        (loop.module, target)
        for loop in training.loops
        if loop.trains and training.shares(loop)
        for statement in loop.module.walk(loop.statement, ast.Assign)
        if statement not in kept
        for target in statement.targets
        if isinstance(target, ast.Subscript) and _is_of_samples(loop, target)
    ]


def _is_of_samples(loop: LoaderLoop, stored: ast.Subscript) -> bool:
    module, around = loop.module, loop.statement
    owner = module.variable(stored.value)
    inside = any(b.statement is around or module.holds(around, b.statement) for b in module.bindings_of(stored.value))
    if owner is None or inside:
        return False
    drawn = set(_drawn(loop))
    return any(module.variable(name) in drawn for name in module.walk(stored.slice, ast.Name))


def _drawn(loop: LoaderLoop) -> Iterator[Variable | None]:
    """The names that a batch, or its parts, have in a loop."""
    parts: list[ast.expr] = [loop.statement.target]
    if is_call_of(loop.statement.iter, "enumerate") and isinstance(loop.statement.target, ast.Tuple):
        parts = loop.statement.target.elts[1:]
    for part in parts:
        yield from (loop.module.variable(name) for name in loop.module.walk(part, ast.Name))
