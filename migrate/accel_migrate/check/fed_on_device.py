"""AM959: what a prepared model is called with is on its device, whichever accelerator that is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side, is_accelerator, step_of
from accel_migrate.flow.calls import Place
from accel_migrate.flow.program import File, Function, Scope

Found = Iterator[tuple[File, ast.AST, str]]
_CUDA = ("torch.cuda.is_available", "torch.cuda.device_count")
_PASSED_ON = (
    "Variable",
    "float",
    "long",
    "double",
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "contiguous",
)


def find(project: Project) -> Iterator[Violation]:
    for file, node, message in _found(project.evidence):
        yield Violation("AM959", file.path, getattr(node, "lineno", 1), message)


def _found(evidence: Evidence) -> Found:
    """Batches of a plain loader that nothing moves, and moves to the Accelerator's device only where CUDA is."""
    side = evidence.after
    if not side.created or any(
        keyword.arg in ("cpu", "device") for _, call in side.created for keyword in call.keywords
    ):
        return
    if _fed_itself(evidence.before):
        yield from _unmoved(side)
    yield from _moved_for_cuda_only(side)


def _fed_itself(before: Side) -> bool:
    """Whether the original ran with batches that nothing moved: DataParallel did, or all of it was on the CPU."""
    moved = any(getattr(call.func, "attr", "") in ("to", "cuda") for _, call in before.calls)
    return not moved or any((f.qualified(c.func) or "").endswith(".DataParallel") for f, c in before.calls)


def _unmoved(side: Side) -> Found:
    for file, call in side.calls:
        if not side.flows.made(file, call.func, "prepared"):
            continue
        for argument in call.args:
            name = next((n for n in ast.walk(argument) if isinstance(n, ast.Name) and _is_plain(side, file, n)), None)
            if name is not None and not _may_move(argument):
                yield (
                    file,
                    call,
                    f"{name.id} would be on the CPU in `{ast.unparse(call)[:60]}`: nothing moves it, nor is its loader prepared",
                )


def _is_plain(side: Side, file: File, name: ast.Name) -> bool:
    """Whether every value of a name is a batch of a loader that is not prepared, or a part of one, and never moved."""
    scope = file.binder(name.id, file.scope(name))
    values = _values(file, scope, name.id) if scope is not None else []
    drawn = [value for value, is_batch in values if is_batch]
    if not drawn or any(_may_move(value) or name.id not in _names(value) for value, is_batch in values if not is_batch):
        return False
    return all(
        side.flows.made(file, loader, "loader") and not side.flows.made(file, loader, "prepared") for loader in drawn
    )


def _values(file: File, scope: Scope, name: str) -> list[tuple[ast.expr, bool]]:
    """What a name gets in its scope: what it is assigned, or (with True) what it is drawn from by a loop."""
    found: list[tuple[ast.expr, bool]] = []
    for node in file.nodes:
        if isinstance(node, ast.For | ast.comprehension) and name in _names(node.target):
            if file.binder(name, file.scope(node.target)) is scope:
                found.append((node.iter, True))
        elif isinstance(node, ast.Assign) and file.binder(name, file.scope(node)) is scope:
            for target in node.targets:
                if (
                    isinstance(target, ast.Tuple)
                    and isinstance(node.value, ast.Tuple)
                    and len(target.elts) == len(node.value.elts)
                ):
                    found += [(v, False) for t, v in zip(target.elts, node.value.elts) if name in _names(t)]
                elif name in _names(target):
                    found.append((node.value, False))
    return found


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _may_move(node: ast.expr) -> bool:
    """Whether a call in an expression could move what it gets."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name not in _PASSED_ON:
                return True
    return False


def _moved_for_cuda_only(side: Side) -> Found:
    """`if torch.cuda.is_available(): x = x.to(accelerator.device)`: on another accelerator x stays behind."""
    flows = side.flows
    seeds = [flows.place(f, c) for f, c in side.calls if (f.qualified(c.func) or "") in _CUDA]
    if not seeds:
        return
    about_cuda = flows.reached(seeds)
    for file, call in side.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args):
            continue
        device = call.args[0]
        if isinstance(device, ast.Attribute) and device.attr == "device" and is_accelerator(device.value):
            test = _condition(side, file, call, about_cuda)
            if test is not None and _after_prepare(side, file, call, frozenset()):
                yield (
                    file,
                    call,
                    f"`{ast.unparse(call)[:60]}` would run only under `{ast.unparse(test)}`, and the model be on any accelerator",
                )


def _after_prepare(side: Side, file: File, node: ast.AST, seen: frozenset[Function]) -> bool:
    """Whether a node can run once a model is prepared."""
    scope = file.scope(node).function
    graph = side.graph(scope)
    step = step_of(file, node, graph)
    for other, call in side.asked("prepare"):
        first = step_of(file, call, graph) if other is file and file.scope(call).function is scope else None
        if first is not None and step is not None and graph.reachable(first, step):
            return True
    function = scope.node
    if not isinstance(function, Function) or function in seen:
        return False
    sites = side.above(function)
    return not sites or any(_after_prepare(side, site.file, site.call, seen | {function}) for site in sites)


def _condition(side: Side, file: File, call: ast.Call, about: set[Place]) -> ast.expr | None:
    at: ast.AST = call
    while not isinstance(at, ast.stmt):
        above = file.parents[at]
        if isinstance(above, ast.IfExp) and at is not above.test and side.flows.place(file, above.test) in about:
            return above.test
        at = above
    graph = side.graph(file.scope(call))
    step = step_of(file, at, graph)
    for decision in graph.control_dependences(step) if step is not None and graph.is_reached(step) else ():
        if decision.test is not None and side.flows.place(file, decision.test) in about:
            return decision.test
    return None


CONDITION = Condition(
    code="AM959",
    name="fed_on_device",
    summary="a prepared model would be called with data that is not on its device",
    why="DataParallel moves what it gets, a prepared model does not: batches of a loader that is not prepared must be moved. "
    "And the Accelerator may choose another accelerator than CUDA, so that a move under a question for CUDA is not enough.",
    example_before="for inputs, targets in plain_loader:\n    outputs = model(inputs)",
    example_after="for inputs, targets in plain_loader:\n    outputs = model(inputs.to(accelerator.device))",
    find=find,
)
