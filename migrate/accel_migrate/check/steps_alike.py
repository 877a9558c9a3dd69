"""AM961: every process takes the same number of steps, and a schedule that is stepped for all ends where it should."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side, is_accelerator
from accel_migrate.flow.nodes import children, unparse, walk
from accel_migrate.flow.program import File, Function

Found = Iterator[tuple[File, ast.AST, str]]


def find(project: Project) -> Iterator[Violation]:
    for file, node, message in _found(project.evidence):
        yield Violation("AM961", file.path, getattr(node, "lineno", 1), message)


def _found(evidence: Evidence) -> Found:
    """Backward passes whose number depends on a process's own batch, and schedules in loops that end by a count."""
    side = evidence.after
    for file in side.files:
        for node in file.of_kinds(ast.For):
            if isinstance(node, ast.For) and side.flows.made(file, node.iter, "prepared"):
                yield from _by_the_batch(file, node)
                yield from _by_a_count(side, file, node)
    for file, call in side.asked("prepare"):
        yield from _by_a_shard(file, call)
    if not _is_seeded(side):
        for file, call in side.asked("backward"):
            yield from _by_the_games(side, file, call, frozenset())


def _by_the_batch(file: File, loop: ast.For) -> Found:
    """A loop over parts of the batch, with a backward pass for each."""
    own = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)} - _counters(loop)
    for node in walk(loop):
        if isinstance(node, ast.Assign) and own & {n.id for n in walk(node.value) if isinstance(n, ast.Name)}:
            own |= {n.id for t in node.targets for n in walk(t) if isinstance(n, ast.Name)}
        if (
            isinstance(node, ast.For | ast.While)
            and node is not loop
            and any(_is_backward(each) for each in walk(node))
        ):
            decided = node.iter if isinstance(node, ast.For) else node.test
            if own & {n.id for n in walk(decided) if isinstance(n, ast.Name)}:
                yield (
                    file,
                    node,
                    f"how often `{unparse(decided)[:50]}` trains depends on the batch, and so on the process",
                )


def _by_a_shard(file: File, prepare: ast.Call) -> Found:
    """A schedule's own function that asks for the length of a loader when it is called: then it is one shard's."""
    names = {unparse(argument) for argument in prepare.args}
    for node in file.of_kinds(ast.Lambda):
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


def _is_seeded(side: Side) -> bool:
    """Whether torch and an environment are always given a seed: then all processes may play the same games."""
    certain = [(file, call) for file, call in side.calls if not _is_optional(file, call)]
    names = {getattr(call.func, "attr", "") for _, call in certain}
    given = any(keyword.arg == "seed" for _, call in certain for keyword in call.keywords)
    drawn = {
        unparse(call.func).rpartition("action_space")[2]
        for _, call in side.calls
        if "action_space" in unparse(call.func)
    }
    if ".sample" in drawn and ".seed" not in drawn:
        return False  # actions are drawn by a generator of their own
    return bool(names & {"manual_seed", "set_seed"}) and (given or "seed" in names)


def _is_optional(file: File, call: ast.Call) -> bool:
    """Whether a seed is given only if one was asked for: `if args.seed: torch.manual_seed(args.seed)`."""
    return any(isinstance(above, ast.If) and "seed" in unparse(above.test) for above in file.ancestors(call))


def _by_the_games(side: Side, file: File, node: ast.AST, seen: frozenset[ast.AST]) -> Found:
    """A backward pass in an episode, which ends when the environment says so, or once episodes have filled a memory."""
    scope = file.scope(node).function
    told = _told_by_games(side, scope.node)
    at = node
    while at in file.parents and at is not scope.node:
        inner, at = at, file.parents[at]
        if isinstance(at, ast.For | ast.While) and (ends := _end_of_episode(at, told)) is not None:
            yield file, at, f"how often it trains would depend on `{unparse(ends)[:50]}`, on each process's own games"
            return
        if isinstance(at, ast.If) and inner is not at.test and (asked := _size_in(at.test)) is not None:
            if any(_end_of_episode(loop, told) for loop in walk(scope.node) if isinstance(loop, ast.For | ast.While)):
                yield file, at, f"when it trains would depend on `{unparse(asked)[:50]}`, on each process's own games"
                return
    if isinstance(scope.node, Function) and scope.node not in seen:
        for site in side.above(scope.node):
            yield from _by_the_games(side, site.file, site.call, seen | {scope.node})


def _told_by_games(side: Side, function: ast.AST) -> set[str]:
    """The names that hold what an environment answered, what is made of that, and what is set where it decides."""
    defined = [node for file in side.files for node in file.of_kinds(ast.FunctionDef, ast.AsyncFunctionDef)]
    plays: set[str] = {node.name for node in defined if any(map(_answer, walk(node)))}  # type: ignore[attr-defined]
    nodes = walk(function)
    found = {name for node in nodes for name in _answer(node)}
    for _ in range(4 if found or plays else 0):
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AugAssign) and _is_told(node.value, found, plays):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.If) and _is_told(node.test, found, plays):
                inner = [part for statement in (*node.body, *node.orelse) for part in walk(statement)]
                found |= {part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                if isinstance(node.func.value, ast.Name) and _is_told(node.args[0], found, plays):
                    found.add(node.func.value.id)
    return found - {"_"}


def _answer(node: ast.AST) -> set[str]:
    """The names of `state, reward, done, info = env.step(action)`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple) or len(node.targets[0].elts) < 3:
        return set()
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if not isinstance(called, ast.Attribute) or called.attr != "step":
        return set()
    return {part.id for part in walk(node.targets[0]) if isinstance(part, ast.Name)}


def _is_told(value: ast.AST, told: set[str], plays: set[str]) -> bool:
    """Whether a value is made of what games told, itself or in a function that plays; how many there are is none of it."""
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if name in plays or name in ("len", "size"):
            return name in plays
    if isinstance(value, ast.Name):
        return value.id in told
    return any(_is_told(part, told, plays) for part in children(value))


def _end_of_episode(loop: ast.For | ast.While, told: set[str]) -> ast.expr | None:
    """What a loop asks of an environment's answer before it goes on."""
    inner = {
        n for other in walk(loop) if isinstance(other, ast.For | ast.While) and other is not loop for n in walk(other)
    }
    stops = [
        node.test
        for node in walk(loop)
        if isinstance(node, ast.If) and node not in inner and any(isinstance(each, ast.Break) for each in node.body)
    ]
    for test in [loop.test, *stops] if isinstance(loop, ast.While) else stops:
        if _is_told(test, told, set()):
            return test
    return None


def _size_in(test: ast.expr) -> ast.Call | None:
    for node in walk(test):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("len", "size", "__len__"):
                return node
    return None


def _counters(loop: ast.For) -> set[str]:
    """The number that `enumerate` gives is the same on every process."""
    counted = isinstance(loop.iter, ast.Call) and any(
        "enumerate" in unparse(n) for n in (loop.iter.func, *loop.iter.args)
    )
    if counted and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
        return {loop.target.elts[0].id}
    return set()


def _is_backward(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and is_accelerator(node.func.value)
    )


def _by_a_count(side: Side, file: File, loop: ast.For) -> Found:
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


def _is_schedule(side: Side, file: File, node: ast.expr) -> bool:
    """Whether a prepared object was built over an optimizer that is prepared with it."""
    for made in side.flows.made(file, node, "prepared"):
        assert isinstance(made.node, ast.Call)
        text = unparse(made.node.args[made.index]) if made.index < len(made.node.args) else ""
        others = {unparse(argument) for argument in made.node.args} - {text}
        for each in side.files:
            for assigned in each.of_kinds(ast.Assign):
                if isinstance(assigned, ast.Assign) and unparse(assigned.targets[0]) == text:
                    value = assigned.value
                    if isinstance(value, ast.Call) and value.args and unparse(value.args[0]) in others:
                        return True
    return False


CONDITION = Condition(
    code="AM961",
    name="steps_alike",
    summary="processes would take different numbers of steps, or a schedule too many",
    why="In each backward pass the processes exchange gradients: one that makes more of them than the others waits for ever. So "
    "the number of backward passes must not depend on a process's own batch, or on how long its own games last. And a prepared "
    "schedule moves on for all processes at once, which is right for loops that go through the data, not for those that end "
    "after a number of steps.",
    example_before="for images in loader:\n    for image in images:\n        accelerator.backward(model(image))",
    example_after="for images in loader:\n    accelerator.backward(model(images))",
    find=find,
)
