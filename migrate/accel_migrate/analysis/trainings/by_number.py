"""Samples that a training pairs by the number of a batch: `labels[i]` for the i-th batch of a loader in the order of its data.

Each process numbers the batches of its own shard. Silent where the loader draws its order, which leaves nothing to pair by
a number, and where a process itself fills what is read, in that same order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.evaluation.counting import counter_of
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.values.constructions import all_constructions, draws_order
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.sources import Place, behind, held
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import called_name, calls_method, is_call_of, unparse
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module

# The file, the statement and the name by which a number of batches is bound.
Number = tuple[Module, ast.stmt, str]
_NOT_DATA = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER | Role.LOADER | Role.LOADERS | Role.CRITERION | Role.BATCH
_YIELDS = Role.LOADER | Role.LOADERS | Role.ITERATOR
_SELECTS = ("get", "index_select", "narrow", "select", "take")
_FARTHEST = 50


def check(graph: CallGraph, local: Locality, loops: Iterable[LoaderLoop], backwards: Iterable[Backward]) -> None:
    """Raises NotMigrated where the loss of a batch comes of what its number selects from data of all processes."""
    ordered = [loop for loop in loops if loop.trains and not _draws(graph, loop)]
    numbers = {number for loop in ordered for number in _numbers(loop)}
    beside = {number: data for loop in ordered for number, data in _beside(graph, local, loop)}
    for backward in backwards if ordered else ():
        for module, node in behind(graph, backward.module, backward.loss, Role.MODEL | Role.LOADER):
            chosen = _chosen(node)
            if chosen is not None and _goes_by(graph, module, chosen[1], numbers):
                if _is_data(graph, local, module, chosen[0]):
                    raise _paired(module, node, unparse(node))
            for number in _bound(module, node) if beside else ():
                if number in beside:
                    raise _paired(module, number[1], unparse(beside[number]))
            if is_call_of(node, "next") and any(module.holds(loop.statement, node) for loop in ordered):
                begun = [(owner, v.args[0]) for owner, v in held(graph, module, node.args[0]) if is_call_of(v, "iter")]
                if any(_is_beside(graph, local, *each) for each in begun):
                    raise _paired(module, node, unparse(node))


def _paired(module: Module, node: ast.AST, text: str) -> NotMigrated:
    return NotMigrated(
        f"`{text}` is paired with a batch by the number of it, and each process numbers the batches of its own shard: the loss "
        "would be of other samples; let the data set yield both",
        (module, node),
    )


def _draws(graph: CallGraph, loop: LoaderLoop) -> bool:
    made = all_constructions(graph.roles, graph, loop.module, loop.loader)
    return bool(made) and all(draws_order(*each) for each in made or ())


def _numbers(loop: LoaderLoop) -> list[Number]:
    """`i` of `enumerate`, and what each round adds to from what stands above the loop: `start += len(x)`."""
    module, block = loop.module, loop.module.block(loop.statement)
    name = counter_of(module, loop.statement)
    found: list[Number] = [(module, loop.statement, name)] if name is not None else []
    for counted, target in _zipped(loop):
        if (
            isinstance(counted, ast.Call)
            and called_name(counted) in ("range", "count")
            and isinstance(target, ast.Name)
        ):
            found.append((module, loop.statement, target.id))
    for added in loop.statement.body:
        if isinstance(added, ast.AugAssign) and isinstance(added.target, ast.Name):
            begun = [b.statement for b in module.bindings_of(added.target) if b.statement is not added]
            if all(each in block for each in begun):
                found.append((module, added, added.target.id))
    return found


def _zipped(loop: LoaderLoop) -> list[tuple[ast.expr, ast.expr]]:
    """What goes along with a loader in `zip(loader, labels)`, each with its target."""
    target, iterated = loop.statement.target, loop.statement.iter
    while isinstance(iterated, ast.Call) and iterated.args and not is_call_of(iterated, "zip"):
        if is_call_of(iterated, "enumerate") and isinstance(target, ast.Tuple):
            target = target.elts[-1]
        iterated = iterated.args[0]
    together = is_call_of(iterated, "zip") and isinstance(target, ast.Tuple)
    return list(zip(iterated.args, target.elts)) if together else []  # type: ignore[attr-defined]


def _beside(graph: CallGraph, local: Locality, loop: LoaderLoop) -> Iterator[tuple[Number, ast.expr]]:
    """The names of what `zip` takes from data of all processes, each time a batch is taken from a shard."""
    module = loop.module
    for data, target in _zipped(loop):
        if _is_beside(graph, local, module, data):
            yield from (((module, loop.statement, name.id), data) for name in module.walk(target, ast.Name))


def _is_beside(graph: CallGraph, local: Locality, module: Module, data: ast.expr) -> bool:
    """Whether data of all processes is given one after another, and no loader's."""
    made = behind(graph, module, data)
    return _is_data(graph, local, module, data) and not any(graph.roles.role(*each) & _YIELDS for each in made)


def _bound(module: Module, node: ast.expr) -> list[Number]:
    bound = reaching(module, node) if isinstance(node, ast.Name) else []
    return [(module, binding.statement, node.id) for binding in bound]  # type: ignore[attr-defined]


def _chosen(node: ast.expr) -> tuple[ast.expr, list[ast.expr]] | None:
    """What is selected from, and by what."""
    if isinstance(node, ast.Subscript):
        return node.value, [node.slice]
    if calls_method(node, *_SELECTS):
        return node.func.value, node.args
    return None


def _goes_by(graph: CallGraph, module: Module, chosen: list[ast.expr], numbers: set[Number]) -> bool:
    """Whether a number of batches decides on a place; one that goes round, `i % 2`, tells no sample from another."""

    def steps(place: Place) -> Iterable[Place]:
        owner, value = place
        for name in owner.walk(value, ast.Name):
            yield from held(graph, owner, name)

    places = [(module, part) for part in chosen if not _goes_round(part)]
    return any(
        number in numbers
        for owner, value in closure(places, steps, _FARTHEST)
        if not _goes_round(value)
        for name in owner.walk(value, ast.Name)
        for number in _bound(owner, name)
    )


def _goes_round(node: ast.AST) -> bool:
    """`i % 2`, and not `i % len(labels)`, which is `i` for as long as there are labels."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
        return False
    return not any(is_call_of(part, "len") for part in ast.walk(node.right))


def _is_data(graph: CallGraph, local: Locality, module: Module, node: ast.expr) -> bool:
    """Whether what is selected from is no part of training, and the same on all processes."""
    if local.is_local(module, node):
        return False
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call) and module.variable(node) is None:
        node = node.func if isinstance(node, ast.Call) else node.value
    return module.variable(node) is not None and not graph.roles.role(module, node) & _NOT_DATA
