"""AM973: on every path, what a training loop goes over and steps, and what lost its moves, is what `prepare` returned."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side
from accel_migrate.check.loader_origins import Origins, of_every_loader
from accel_migrate.check.stores import Stores
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

CODE = "AM973"


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    if not any(True for _ in side.asked("prepare")):
        return
    origins, moved = Origins(side), side.once(of_every_loader)
    for file, loop in side.once(TrainingLoops).found:
        other = origins.other(file, loop.iter) if origins.may_be(file, loop.iter) else None
        if other is not None:
            message = (
                f"`for ... in {unparse(loop.iter)[:50]}` may go over {_named(*other)}, which nothing shards or moves"
            )
            yield Violation(CODE, file.path, loop.lineno, message)
    for file, drawn in _left_unmoved(project.evidence):
        other = moved.other(file, drawn) if moved.may_be(file, drawn) else None
        if other is not None:
            text = f"batches of `{unparse(drawn)[:50]}` would no longer be moved"
            message = f"{text}, and may be those of {_named(*other)}, which is not prepared"
            yield Violation(CODE, file.path, drawn.lineno, message)
    for file, call in side.asked("prepare"):
        for argument in call.args:
            handed = origins.view(file, argument)
            if handed is not None:
                message = f"prepare() would get `{unparse(handed)[:50]}`, which is no loader itself and is not sharded"
                yield Violation(CODE, file.path, call.lineno, message)


def _named(file: Module, node: ast.AST) -> str:
    return f"`{unparse(node)[:50]}` ({file.path.name})"


def _left_unmoved(evidence: Evidence) -> Iterator[tuple[Module, ast.expr]]:
    """What batches are drawn from in the result, where the original moved more of them."""
    for new in evidence.after.files:
        old = evidence.before.file(new.path)
        if old is None or old.tree is new.tree:
            continue
        moved = {key: often for key, _, often in _draws(evidence.before, old)}
        for key, drawn, often in _draws(evidence.after, new):
            if often < moved.get(key, 0):
                yield new, drawn


def _draws(side: Side, file: Module) -> Iterator[tuple[object, ast.expr, int]]:
    """Where batches are drawn, each found again by its function, its names and its turn; with how many moves are made of them."""
    turns: Counter[object] = Counter()
    for node in file.walk(file.tree, ast.For, ast.comprehension, ast.Assign):
        if isinstance(node, ast.Assign):
            value, target = node.value, node.targets[0]
            if not (isinstance(value, ast.Call) and called_name(value) == "next" and value.args):
                continue
            drawn, moves = (
                value.args[0],
                [m for m in _moved(file, file.scope(node).frame.node) if _is_of(side, file, m, node)],
            )
        else:
            drawn, target = node.iter, node.target
            moves = list(_moved(file, node if isinstance(node, ast.For) else file.parents[node]))
        key = (file.scope(node).frame.path, type(node), unparse(target))
        turns[key] += 1
        yield (key, turns[key]), drawn, len(moves)


def _moved(file: Module, around: ast.AST) -> Iterator[ast.expr]:
    """What `.to()` and `.cuda()` are called on."""
    for each in file.walk(around, ast.Call):
        if isinstance(each.func, ast.Attribute) and each.func.attr in ("to", "cuda"):
            yield each.func.value


def _is_of(side: Side, file: Module, moved: ast.expr, drawn: ast.Assign) -> bool:
    """Whether what is moved is what an assignment has drawn, or a part of it."""
    names = [part for part in walk(moved) if isinstance(part, ast.Name)]
    return any(store.node is drawn for name in names for store in side.once(Stores).reaching(file, name))


class TrainingLoops:
    """The loops in which a backward pass runs, in their body or in what that calls."""

    def __init__(self, side: Side) -> None:
        running = {call for _, call in side.asked("backward")}
        waiting = list(side.asked("backward"))
        while waiting:
            file, call = waiting.pop()
            function = file.scope(call).frame.node
            for site in side.above(function) if isinstance(function, Function) else ():
                if site.call not in running:
                    running.add(site.call)
                    waiting.append((site.file, site.call))
        self.found = [
            (file, loop)
            for file in side.files
            for loop in file.walk(file.tree, ast.For, ast.AsyncFor)
            if not running.isdisjoint(walk(loop))
        ]


CONDITION = Condition(
    code=CODE,
    name="loaders_prepared",
    summary="a training loop, or batches that are no longer moved, would be of something that is not prepared",
    why="Only what `prepare` returns is sharded and moved to the device. A loader that was kept under another name, in a mapping "
    "or an object before `prepare`, or that takes the prepared one's place later, is not: each process would train on all of its "
    "data, and its batches would not be where the model is. The same holds for a loop that only looks, once its moves "
    "are taken out.",
    example_before='state = {"loader": loader}\nmodel, loader = accelerator.prepare(model, loader)\n'
    'for x, y in state["loader"]:\n    accelerator.backward(model(x, y))',
    example_after="model, loader = accelerator.prepare(model, loader)\nfor x, y in loader:\n"
    "    accelerator.backward(model(x, y))",
    find=find,
)
