"""AM961: every process takes the same number of steps, and a schedule that is stepped for all ends where it should."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.collective_under_rank import meeting
from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.divergence import Divergence, ends_the_run
from accel_migrate.check.evidence import Evidence, Found, Side, step_of
from accel_migrate.flow.calls import Made
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_OF_ALL = ("KeyboardInterrupt", "StopIteration", "ImportError", "ModuleNotFoundError")  # met by all, or by none


def _found(evidence: Evidence) -> Found:
    """What a process decides for itself on the way to a step, and schedules in loops that end by a count."""
    side = evidence.after
    divergence = side.once(Divergence)
    told: set[ast.AST] = set()
    for file, call, what in _meetings(side):
        for decision, where, own in divergence.decided_by(file, call):
            if decision.statement not in told:
                told.add(decision.statement)
                text = unparse(decision.test)[:50] if decision.test is not None else ""
                yield where, decision.statement, f"whether {what} runs would depend on `{text}`, on {own}"
        yield from _by_a_failure(side, file, call, what, told)
    yield from _by_own_rates(side, divergence)
    for file in side.files:
        for node in file.walk(file.tree, ast.For):
            if side.flows.made(file, node.iter, "prepared"):
                yield from _by_a_count(side, file, node)
    yield from _past_the_end(side)
    for file, call in side.asked("prepare"):
        yield from _by_a_shard(file, call)
        yield from _made_for_a_shard(side, file, call)


def _by_a_failure(side: Side, file: Module, call: ast.Call, what: str, told: set[ast.AST]) -> Found:
    """A step in a loop that goes on, or ends, after an error that one process alone may run into."""
    graph = side.graph(file.scope(call))
    step = step_of(file, call, graph) if file.walk(file.tree, ast.Try) else None
    if step is None or not graph.is_reached(step):
        return
    for tried in dict.fromkeys(decision.statement for decision in graph.control_dependences(step)):
        if not isinstance(tried, ast.Try) or tried in told or not _runs_again(side, file, tried):
            continue
        for handler in tried.handlers:
            caught = unparse(handler.type) if handler.type is not None else "any error"
            if not any(word in caught for word in _OF_ALL) and not ends_the_run(handler.body):
                told.add(tried)
                yield file, tried, f"whether {what} runs would depend on {caught}, which a process may meet alone"


def _by_own_rates(side: Side, divergence: Divergence) -> Found:
    """An optimizer whose kind or rates each process draws for itself: weights that part in silence."""
    for file, call in side.calls:
        kind = call.func.args[0] if isinstance(call.func, ast.Call) and call.func.args else call.func
        if not (file.qualified(kind) or "").startswith("torch.optim") or file not in side.involved:
            continue
        chosen = call.func.args[1:] if isinstance(call.func, ast.Call) else []
        for value in (*call.args[1:], *[keyword.value for keyword in call.keywords], *chosen):
            own = divergence.of_value(file, value)
            if own:
                yield file, call, f"each process would train with its own `{unparse(value)[:40]}`, by {own}"
                break


def _runs_again(side: Side, file: Module, node: ast.AST) -> bool:
    """Whether a statement may run more than once: in a loop, or in a function that is called in one."""
    waiting = [(file, node)]
    seen: set[ast.AST] = set()
    for where, at in waiting:
        graph = side.graph(where.scope(at))
        step = step_of(where, at, graph)
        if step is not None and graph.in_loop(step):
            return True
        function = where.scope(at).frame.node
        if isinstance(function, Function) and function not in seen:
            seen.add(function)
            waiting += [(site.file, site.call) for site in side.above(function)]
    return False


def _meetings(side: Side) -> Iterator[tuple[Module, ast.Call, str]]:
    """Where all processes must come equally often: backward passes, forward passes, steps, and what gathers."""
    for file, call in side.calls:
        what = meeting(side, file, call)
        if what:
            yield file, call, what
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            if side.flows.made(file, call.func.value, "prepared"):
                yield file, call, f"{unparse(call)[:50]}"


def _past_the_end(side: Side) -> Found:
    """`for _ in range(n): next(batches)`, where `n` was taken of a loader before it was sharded."""
    flows = side.flows
    given = {flows.place(file, argument) for file, call in side.asked("prepare") for argument in call.args}
    whole = {source for place in given for source in flows.sources(place)}
    lengths = [
        flows.place(file, call)
        for file, call in side.calls
        if unparse(call.func) == "len" and call.args and not side.after_prepare(file, call)
        if flows.place(file, call.args[0]) in whole
    ]
    counts = flows.reached(lengths)
    for file in side.files if lengths else ():
        for loop in file.walk(file.tree, ast.For):
            counted = (
                isinstance(loop.iter, ast.Call)
                and unparse(loop.iter.func) == "range"
                and side.after_prepare(file, loop)
            )
            if counted and any(flows.place(file, each) in counts for each in loop.iter.args):  # type: ignore[attr-defined]
                taken = [
                    call for call in file.walk(loop, ast.Call) if unparse(call.func) == "next" and len(call.args) == 1
                ]
                for call in taken:
                    tried = any(isinstance(each, ast.Try) and file.holds(loop, each) for each in file.ancestors(call))
                    if not tried and _ends(side, file, call.args[0]):
                        text = unparse(loop.iter)[:50]
                        yield (
                            file,
                            call,
                            f"`{unparse(call)}` would find no batch: `{text}` goes by a length from before prepare()",
                        )


def _ends(side: Side, file: Module, iterator: ast.expr) -> bool:
    """Whether an iterator is one of a prepared loader itself: of `cycle(loader)` the batches do not end."""
    values = [n.value for n in file.walk(file.tree, ast.Assign) if unparse(n.targets[0]) == unparse(iterator)]
    read = [v.args[0] for v in values if isinstance(v, ast.Call) and unparse(v.func) == "iter" and len(v.args) == 1]
    direct = [each for each in read if isinstance(each, ast.Name | ast.Attribute) and side.is_prepared(file, each)]
    return bool(values) and len(direct) == len(values)


def _by_a_shard(file: Module, prepare: ast.Call) -> Found:
    """A schedule's own function that asks for the length of a loader when it is called: then it is one shard's."""
    names = {unparse(argument) for argument in prepare.args}
    for node in file.walk(file.tree, ast.Lambda):
        outer = file.parents[node]
        made = file.parents[outer] if isinstance(outer, ast.keyword) else outer
        if not isinstance(made, ast.Call) or not (file.qualified(made.func) or "").startswith("torch.optim."):
            continue
        for part in walk(node):
            if isinstance(part, ast.Call) and unparse(part.func) == "len" and part.args:
                if unparse(part.args[0]) in names:
                    yield (
                        file,
                        node,
                        f"a schedule would ask for `{unparse(part)}` after prepare(), of one process's shard",
                    )


def _made_for_a_shard(side: Side, file: Module, prepare: ast.Call) -> Found:
    """`OneCycleLR(opt, total_steps=len(loader))` of a loader that an earlier `prepare` has sharded: the next counts for all."""
    scope = file.scope(prepare).frame
    graph = side.graph(scope)
    given = {unparse(argument) for argument in prepare.args}
    earlier = [
        (c, step_of(file, c, graph)) for f, c in side.asked("prepare") if f is file and file.scope(c).frame is scope
    ]
    assigned = [node for node in walk(scope.node) if isinstance(node, ast.Assign) and graph.holds(node)]
    for made in assigned:
        call = made.value
        is_schedule = isinstance(call, ast.Call) and (file.qualified(call.func) or "").startswith(
            "torch.optim.lr_scheduler."
        )
        if not is_schedule or unparse(made.targets[0]) not in given:
            continue
        named = {unparse(part) for part in walk(call) if isinstance(part, ast.Name | ast.Attribute)}
        behind = [made, *(each for each in assigned if named.intersection(unparse(t) for t in each.targets))]
        lengths = [(each, part) for each in behind for part in walk(each.value) if isinstance(part, ast.Call)]
        for statement, part in lengths:
            if unparse(part.func) != "len" or not part.args:
                continue
            loader = unparse(part.args[0])
            again = [each for each in assigned if loader in [unparse(t) for t in each.targets]]
            for other, step in earlier:
                known = step is not None and loader in [unparse(argument) for argument in other.args]
                if known and graph.reachable_past(step, statement, again):
                    yield (
                        file,
                        made,
                        f"`{unparse(part)}` would be of one process's shard, and the schedule that is made for it count for all",
                    )
                    break


def _by_a_count(side: Side, file: Module, loop: ast.For) -> Found:
    """A prepared schedule moves on once for each process; a loop that breaks at a count would take it too far."""
    stops = [n for n in walk(loop) if isinstance(n, ast.If) and isinstance(n.test, ast.Compare)]
    if not any(isinstance(inner, ast.Break) for stop in stops for inner in stop.body):
        return
    for node in walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            if _is_schedule(side, file, node.func.value):
                text = unparse(node.func.value)
                yield (
                    file,
                    node,
                    f"`{text}` would move on once for each process, in a loop that ends at a count of its own",
                )


def _is_schedule(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether a prepared object was built over another one that nobody calls, as models are: over its optimizer."""
    for made in side.flows.made(file, node, "prepared"):
        assert isinstance(made.node, ast.Call)
        text = unparse(made.node.args[made.index]) if made.index < len(made.node.args) else ""
        prepared = {unparse(argument): Made("prepared", made.node, n) for n, argument in enumerate(made.node.args)}
        others = {other for other, each in prepared.items() if other != text and each not in side.called}
        for each in side.files:
            for assigned in each.walk(each.tree, ast.Assign):
                if unparse(assigned.targets[0]) == text:
                    value = assigned.value
                    if isinstance(value, ast.Call) and value.args and unparse(value.args[0]) in others:
                        return True
    return False


CONDITION = Condition(
    code="AM961",
    name="steps_alike",
    summary="processes would take different numbers of steps, or a schedule too many",
    why="In each backward pass the processes exchange gradients: one that makes more of them than the others waits for ever. So "
    "no test on the way to one may depend on what a process has for its own: its batch and what is computed from it, numbers "
    "that it draws without a seed, the clock, how long its own games last. What is gathered or reduced is the same on all. "
    "And a prepared schedule moves on for all processes at once, which is right for loops that go through the data, not for "
    "those that end after a number of steps.",
    example_before="for images in loader:\n    for image in images:\n        accelerator.backward(model(image))",
    example_after="for images in loader:\n    accelerator.backward(model(images))",
    find=at_places("AM961", _found),
)
