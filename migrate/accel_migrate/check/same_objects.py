"""AM960: what trains is what was prepared: nobody keeps the object from before, and the name is not given to another."""

from __future__ import annotations

import ast

from accel_migrate.check.assignments import Assignments
from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator, parameter_names, step_of
from accel_migrate.check.loaders_prepared import TrainingLoops
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_MOVES = ("to", "cuda", "cpu")


def _found(evidence: Evidence) -> Found:
    """Objects that hold a model or optimizer from before `prepare`, and names that get another one after it."""
    side = evidence.after
    used = {node.attr for file in side.files for node in file.walk(file.tree, ast.Attribute)}
    for file, call in side.asked("prepare"):
        names = {unparse(argument) for argument in call.args}
        called = {unparse(other.func) for f, other in side.calls if f is file}
        for other, node in side.calls:
            if other is file and file.scope(node).frame is file.scope(call).frame:
                kept = _kept(side, node, names, used)
                if kept and _comes_before(side, file, node, call):
                    yield file, node, f"`{unparse(node)[:60]}` would keep {kept} as it is before prepare()"
        yield from _wrapped(side, file, call, names, called)
        yield from _rebound(side, file, call, names & called)
        yield from _built_again(evidence, file, call, names & called)
        yield from _another_loader(side, file, call)
        yield from _another_optimizer(side, file, call, called)


def _wrapped(side: Side, file: Module, call: ast.Call, names: set[str], called: set[str]) -> Found:
    """`optimizer = Scheduled(adam)`, of a class out of sight, which `prepare` cannot know: it goes on stepping the old one."""
    for node in file.walk(file.tree, ast.Assign):
        made = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(made, ast.Call) or side.flows.callees.get(made):
            continue
        assert isinstance(node, ast.Assign)
        target = unparse(node.targets[0])
        if target not in names or not {f"{target}.zero_grad", f"{target}.step"} <= called:
            continue
        given = [text for argument in made.args if (text := unparse(argument)) in names and text != target]
        if given and _comes_before(side, file, made, call):
            yield file, made, f"`{unparse(made)[:60]}` would keep {given[0]} as it is before prepare()"


def _kept(side: Side, node: ast.Call, names: set[str], used: set[str]) -> str:
    """The argument that a constructor of the project stores in an attribute which is read somewhere."""
    given = [(None, a) for a in node.args] + [(k.arg, k.value) for k in node.keywords]
    for function in side.flows.callees.get(node, ()):
        if getattr(function, "name", "") != "__init__":
            continue
        parameters = parameter_names(function)[1:]
        for index, (name, argument) in enumerate(given):
            parameter = name or (parameters[index] if index < len(parameters) else None)
            if unparse(argument) in names and parameter is not None and _stores(function, parameter) in used:
                return unparse(argument)
    return ""


def _stores(function: Function, parameter: str) -> str | None:
    """The attribute that a method sets to its parameter."""
    for node in walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == parameter:
            if isinstance(node.targets[0], ast.Attribute):
                return node.targets[0].attr
    return None


def _comes_before(side: Side, file: Module, node: ast.AST, call: ast.Call) -> bool:
    graph = side.graph(file.scope(call))
    first, second = step_of(file, node, graph), step_of(file, call, graph)
    if first is None or second is None or first is second:
        return False
    return not graph.dominates(second, first) and graph.reachable(first, second)


def _rebound(side: Side, file: Module, call: ast.Call, names: set[str]) -> Found:
    """`model = torch.load(path)` after prepare: the script goes on with an object that is not prepared."""
    scope = file.scope(call).frame
    graph = side.graph(scope)
    prepared = step_of(file, call, graph)
    for node in file.walk(file.tree, ast.Assign):
        if node is prepared or file.scope(node).frame is not scope:
            continue
        target = unparse(node.targets[0])
        if target not in names or not isinstance(node.value, ast.Call) or prepared is None:
            continue
        read = (file.qualified(node.value.func) or "") == "torch.load"
        placed = any(isinstance(part, ast.Attribute) and is_accelerator(part.value) for part in walk(node.value))
        if not read or placed or not graph.reachable(prepared, node) or _prepared_again(side, file, node, target):
            continue
        told = len(node.value.args) > 1 or any(keyword.arg == "map_location" for keyword in node.value.keywords)
        where = "where map_location says" if told else "on the device that saved it"
        yield file, node, f"`{unparse(node)[:60]}` would put {target} {where}, and not on this process's device"


def _built_again(evidence: Evidence, file: Module, call: ast.Call, names: set[str]) -> Found:
    """`model = Net()` after prepare, also in a method that is called again: nobody puts that one on a device any more."""
    side = evidence.after
    if all(any(k.arg == "cpu" and unparse(k.value) == "True" for k in made.keywords) for _, made in side.created):
        return  # it is made where the Accelerator keeps all: on the CPU
    for argument in call.args:
        for at, node, target, value in _given_another(side, file, call, argument) if unparse(argument) in names else ():
            text = unparse(target)
            if isinstance(value, ast.Call) and not (_is_placed(side, at, node, text) or _stayed(evidence, at, node)):
                message = f"`{unparse(node)[:60]}` would make another {text}, which nothing moves to the device"
                yield at, node, message


def _another_loader(side: Side, file: Module, call: ast.Call) -> Found:
    """`loader = DataLoader(...)` after prepare, in each epoch say, and a step that trains on its batches."""
    for argument in call.args:
        for at, node, target, value in _given_another(side, file, call, argument):
            loaders = {made.node for made in side.flows.made(at, value, "loader")}
            held = side.flows.reached([_stored_in(side, at, target)], computed=False)
            again = _ways_to(side, at, node, file, call)
            if any(
                _goes_over(side, other, loop, target, node, loaders, held)
                and (
                    not isinstance(target, ast.Name)  # else whoever has the object may call its methods again
                    or _may_come_to(side, again, _ways_to(side, other, loop, file, call))
                )
                for other, loop in side.once(TrainingLoops).found
            ):
                text = unparse(target)
                yield at, node, f"`{unparse(node)[:60]}` would make another {text}, which nothing shards or moves"


def _another_optimizer(side: Side, file: Module, call: ast.Call, called: set[str]) -> Found:
    """`optimizer = Adam(...)` after prepare that steps later: by gradients that nobody unscales or shards for it."""
    for argument in call.args:
        text = unparse(argument)
        if not {f"{text}.step", f"{text}.zero_grad"} <= called:
            continue
        steps = [(other, node) for other, node in side.calls if unparse(node.func) == f"{text}.step"]
        for at, node, target, value in _given_another(side, file, call, argument):
            again = _ways_to(side, at, node, file, call)
            if isinstance(value, ast.Call) and any(
                _may_lead(side, one, other)
                for one in again
                for each in steps
                for other in _ways_to(side, *each, file, call)
            ):
                yield at, node, f"`{unparse(node)[:60]}` would make another {unparse(target)}, which nothing prepares"


def _ways_to(side: Side, file: Module, node: ast.AST, home: Module, call: ast.Call) -> list[tuple[Module, ast.AST]]:
    """A node, and the calls of functions that lead to it once `call` has run."""
    around, graph = home.scope(call).frame, side.graph(home.scope(call).frame)
    prepared = step_of(home, call, graph)
    found: list[tuple[Module, ast.AST]] = [(file, node)]
    for at, each in found:
        function = at.scope(each).frame.node
        for site in side.above(function) if isinstance(function, Function) else ():
            step = step_of(site.file, site.call, graph) if site.file.scope(site.call).frame is around else None
            early = prepared is not None and step is not None and not graph.reachable(prepared, step)
            found += [] if early or (site.file, site.call) in found else [(site.file, site.call)]
    return found


def _may_come_to(side: Side, ways: list[tuple[Module, ast.AST]], others: list[tuple[Module, ast.AST]]) -> bool:
    """Whether a run may come from one node to another, by what leads to each; where no function has both, it may."""
    pairs = [(one, end) for one in ways for end in others if one[0].scope(one[1]).frame is end[0].scope(end[1]).frame]
    return not pairs or any(_runs_again(side, *one) if one == end else _may_lead(side, one, end) for one, end in pairs)


def _runs_again(side: Side, file: Module, node: ast.AST) -> bool:
    graph = side.graph(file.scope(node).frame)
    step = step_of(file, node, graph)
    return step is None or graph.reachable(step, step)


def _may_lead(side: Side, first: tuple[Module, ast.AST], second: tuple[Module, ast.AST]) -> bool:
    """Whether a run of one function comes from one node to another."""
    (file, one), (at, other) = first, second
    if file is not at or file.scope(one).frame is not at.scope(other).frame:
        return False
    graph = side.graph(file.scope(one).frame)
    begin, end = step_of(file, one, graph), step_of(at, other, graph)
    return begin is not None and end is not None and begin is not end and graph.reachable(begin, end)


@once
def _given_another(
    side: Side, file: Module, call: ast.Call, argument: ast.expr
) -> list[tuple[Module, ast.stmt, ast.expr, ast.expr]]:
    """Assignments of any file that may run after prepare and give what it prepared another value; with target and value."""
    found: list[tuple[Module, ast.stmt, ast.expr, ast.expr]] = []
    for at, node, target, value, _ in side.once(Assignments).to(file, argument):
        if isinstance(value, ast.Constant):
            continue
        text = unparse(target)
        if any(isinstance(part, ast.expr) and (part is call or unparse(part) == text) for part in walk(value)):
            continue  # `loader = tqdm(loader)` hands on what it was
        if _runs_after(side, at, node, file, call, frozenset()) and not _prepared_again(side, at, node, text):
            found.append((at, node, target, value))
    return found


def _stored_in(side: Side, file: Module, target: ast.expr) -> Place:
    """Where a target keeps what it is given."""
    match target:
        case ast.Attribute():
            return side.flows.field(file, target)
        case ast.Subscript(slice=ast.Constant(value=key)):
            return ("key", key)
    return side.flows.place(file, target)


def _goes_over(
    side: Side,
    file: Module,
    loop: ast.For | ast.AsyncFor,
    target: ast.expr,
    made: ast.stmt,
    loaders: set[ast.AST],
    held: set[Place],
) -> bool:
    """Whether a loop goes over what was made, by its name or by another that it gets to."""
    for part in walk(loop.iter):
        if not isinstance(part, ast.Name | ast.Attribute | ast.Subscript):
            continue
        known = any(each.node in loaders for each in side.flows.made(file, part, "loader"))
        if not known and (loaders or side.flows.place(file, part) not in held):
            continue
        if unparse(part) != unparse(target) or made not in file.parents or _may_hold(side, file, made, target, loop):
            return True
    return False


def _may_hold(side: Side, file: Module, made: ast.stmt, target: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a name that was set may still hold that where a loop of the same function begins."""
    graph = side.graph(file.scope(made))
    if not (graph.holds(made) and graph.holds(loop)):
        return True
    text = unparse(target)
    others = [n for n in file.walk(file.tree, ast.Assign) if n is not made and unparse(n.targets[0]) == text]
    return graph.reachable_past(made, loop, [n for n in others if graph.holds(n)])


def _runs_after(
    side: Side, file: Module, node: ast.AST, home: Module, call: ast.Call, seen: frozenset[Function]
) -> bool:
    """Whether a node runs after a call of prepare, and not on the way to it."""
    scope, around = file.scope(node).frame, home.scope(call).frame
    if scope is around:
        graph = side.graph(scope)
        first, second = step_of(home, call, graph), step_of(file, node, graph)
        return first is not None and second is not None and first is not second and graph.reachable(first, second)
    function = scope.node
    if not isinstance(function, Function) or function in seen:
        return getattr(around.node, "name", "") == "__init__"  # outside of the object: it is made by then
    sites = [site for site in side.above(function) if site.call is not node]
    return any(_runs_after(side, site.file, site.call, home, call, seen | {function}) for site in sites)


def _is_placed(side: Side, file: Module, node: ast.stmt, target: str) -> bool:
    """Whether a new value is moved where it is made, or later in the same function."""
    for part in walk(node):
        moved = isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _MOVES
        if moved or (isinstance(part, ast.keyword) and part.arg in ("device", "map_location")):
            return True
    graph = side.graph(file.scope(node).frame)
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _MOVES
        and unparse(call.func.value) == target
        and (step := step_of(file, call, graph)) is not None
        and graph.reachable(node, step)
        for other, call in side.calls
        if other is file and file.scope(call).frame is file.scope(node).frame
    )


def _stayed(evidence: Evidence, file: Module, node: ast.stmt) -> bool:
    """Whether what a statement makes was never moved by the original either."""
    side, text = evidence.before, unparse(node)
    old = side.file(file.path)
    alike = [n for n in (old.walk(old.tree, ast.Assign) if old else ()) if unparse(n) == text]
    if old is None or not alike:
        return False
    held = side.flows.reached([side.flows.place(old, each.value) for each in alike if isinstance(each, ast.Assign)])
    moves = [(f, c.func) for f, c in side.calls if isinstance(c.func, ast.Attribute) and c.func.attr in _MOVES]
    return not any(side.flows.place(at, move.value) in held for at, move in moves)


def _prepared_again(side: Side, file: Module, node: ast.stmt, name: str) -> bool:
    graph = side.graph(file.scope(node))
    for other, call in side.asked("prepare"):
        step = step_of(file, call, graph) if other is file else None
        if step is not None and any(unparse(a) == name for a in call.args) and graph.dominates(node, step):
            return True
    return False


CONDITION = Condition(
    code="AM960",
    name="same_objects",
    summary="something else than what was prepared would train",
    why="`prepare` gives back the objects that must train. An object that stored the model or the optimizer before that goes on "
    "with the old ones, and so does a script that loads a whole model into the same name, or builds another loader, afterwards.",
    example_before="trainer = Trainer(model, optimizer)\nmodel, optimizer = accelerator.prepare(model, optimizer)",
    example_after="model, optimizer = accelerator.prepare(model, optimizer)\ntrainer = Trainer(model, optimizer)",
    find=at_places("AM960", _found),
)
