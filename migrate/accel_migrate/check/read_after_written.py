"""AM962: a file that one process writes is read by all only once it is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side, step_of
from accel_migrate.flow.program import Function, Scope


def find(project: Project) -> Iterator[Violation]:
    yield from _violations(project.evidence)


def _violations(evidence: Evidence) -> Iterator[Violation]:
    """Loads of a path that the script saves by one process, where nothing waits."""
    side = evidence.after
    if any(True for _ in side.asked("wait_for_everyone")):
        return
    saves = [call for _, call in side.asked("save") if len(call.args) > 1]
    paths = {ast.unparse(call.args[1]) for call in saves}
    for file, call in side.calls:
        if (file.qualified(call.func) or "") == "torch.load" and call.args and ast.unparse(call.args[0]) in paths:
            if _runs_after(side, set(saves), call) and Guards(side).of(file, call) is None:
                message = f"`{ast.unparse(call)[:60]}` would be read by all processes while one may still write it"
                yield Violation("AM962", file.path, call.lineno, message)


def _runs_after(side: Side, saves: set[ast.Call], load: ast.Call) -> bool:
    """Whether a scope does both, itself or in what it calls, and can come from a save to the load."""
    writing, reading = _doing(side, saves), _doing(side, {load})
    for scope, first in writing.items():
        graph = side.graph(scope)
        if any(one is not other and graph.reachable(one, other) for one in first for other in reading.get(scope, ())):
            return True
    return False


def _doing(side: Side, calls: set[ast.Call]) -> dict[Scope, list[ast.stmt]]:
    """For each scope the steps that make one of these calls, or call what does."""
    found: dict[Scope, list[ast.stmt]] = {}
    waiting = [(file, call) for file, call in side.calls if call in calls]
    seen: set[ast.AST] = set()
    while waiting:
        file, call = waiting.pop()
        if call in seen:
            continue
        seen.add(call)
        scope = file.scope(call).function
        step = step_of(file, call, side.graph(scope))
        if step is not None:
            found.setdefault(scope, []).append(step)
        if isinstance(scope.node, Function):
            waiting += [(site.file, site.call) for site in side.above(scope.node)]
    return found


CONDITION = Condition(
    code="AM962",
    name="read_after_written",
    summary="a file would be read before it is written",
    why="`accelerator.save` writes on one process while the others go on. What all processes read back must wait for it.",
    example_before='accelerator.save(weights, "best.pt")\nweights = torch.load("best.pt")',
    example_after='accelerator.save(weights, "best.pt")\naccelerator.wait_for_everyone()\nweights = torch.load("best.pt")',
    find=find,
)
