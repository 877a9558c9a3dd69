"""Models that are run before they are moved, and there are on the CPU; and moves that go where nothing takes their place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from accel_migrate.check.evidence import Evidence, Side, step_of
from accel_migrate.check.starting import scripts_that_run
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module, Scope

# Of libraries, that run a model on what they are given or make.
_RUN = frozenset({"add_graph", "export", "get_model_complexity_info", "make_dot", "profile", "summary", "trace"})


def run_before_their_move(evidence: Evidence) -> Iterator[tuple[Module, ast.Call, str]]:
    """`writer.add_graph(net, sample)` above `net.to(device)`, where prepare() stands before the whole function."""
    for old in evidence.before.files:
        new = evidence.after.file(old.path)
        if new is None or new not in evidence.after.involved:
            continue
        scopes = {scope.path: scope for scope in new.scopes.values()}
        for move in old.walk(old.tree, ast.Call):
            model = _moved(move)
            scope = old.scope(move).frame
            if not model or not isinstance(scope.node, Function):
                continue
            above = list(_runs_above(evidence, old, scope, move, model))
            now = scopes.get(scope.path) if above else None
            if now is not None and not _is_placed(evidence.after, new, now, model):
                for call in above:
                    yield (
                        new,
                        call,
                        f"`{unparse(call)[:60]}` ran before {model} was moved, and would run after prepare()",
                    )


def moved_no_more(evidence: Evidence) -> Iterator[tuple[Module, ast.stmt, str]]:
    """`net = build().to(device)` of a script that predicts alone: nothing prepares there, so the move must stay."""
    prepared = {file.path for file in evidence.after.scripts}
    for old in evidence.before.files:
        new = evidence.after.file(old.path)
        if new is None:
            continue
        left = Counter(key for key, _ in _moves(new))
        for key, call in _moves(old):
            left[key] -= 1
            if left[key] >= 0:
                continue
            if all(script.path not in prepared for script in scripts_that_run(evidence.before, old, call)):
                message = f"`{unparse(call)[:60]}` is gone, and no run of this file has an Accelerator that moves it"
                yield new, new.tree.body[0], message


def _moves(file: Module) -> Iterator[tuple[tuple[object, str], ast.Call]]:
    """What is moved, by the function in which it is."""
    for call in file.walk(file.tree, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda"):
            yield (file.scope(call).frame.path, unparse(call.func.value)), call


def _moved(call: ast.AST) -> str:
    """The name of what a call moves."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda"):
        return call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    return ""


def _is_placed(side: Side, file: Module, scope: Scope, model: str) -> bool:
    """Whether a function moves a model that nothing has prepared yet, or prepares it: all below what ran before."""
    calls = [node for node in walk(scope.node) if isinstance(node, ast.Call)]
    return any(
        (_moved(call) == model and not side.after_prepare(file, call))
        or (getattr(call.func, "attr", "") == "prepare" and any(unparse(part) == model for part in call.args))
        for call in calls
    )


def _runs_above(evidence: Evidence, file: Module, scope: Scope, move: ast.AST, model: str) -> Iterator[ast.Call]:
    if not any(_runs(call, model) for call in file.walk(scope.node, ast.Call)):
        return
    graph = evidence.before.graph(scope)
    last = step_of(file, move, graph)
    for call in walk(scope.node):
        if not isinstance(call, ast.Call) or not _runs(call, model):
            continue
        first = step_of(file, call, graph)
        if first is None or last is None or first is last:
            continue
        if graph.reachable(first, last) and not graph.reachable(last, first):
            yield call


def _runs(call: ast.Call, model: str) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id == model:
        return True
    name = called_name(call)
    return name in _RUN and any(isinstance(part, ast.Name) and part.id == model for part in call.args)
