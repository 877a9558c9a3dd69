"""AM952: one Accelerator for each training: outside of loops, not made by importing a file, and the one that prepares."""

from __future__ import annotations

import ast

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, argument_of, is_accelerator, parameter_names, step_of
from accel_migrate.check.handed_out import HandedOut, callables
from accel_migrate.check.visible_gpus import named_too_late
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_STARTERS = ("torch.multiprocessing.spawn", "torch.multiprocessing.Process", "multiprocessing.Process")


def _found(evidence: Evidence) -> Found:
    """Accelerators that are made too often, by the wrong process, or beside the one that is used."""
    side = evidence.after
    for file, call in side.created:
        again = _called_again(side, file, call, set())
        if again is not None:
            name, text = again
            yield (
                file,
                call,
                f"the Accelerator would be made again in each call of {name}, which `{text}` may call often",
            )
        elif _repeats(side, file, call, _prepared_with(side, file, call), set()):
            yield file, call, "the Accelerator would be made again in each round of a loop"
        yield from _asked_too_early(side, file, call)
        yield from _second(side, file, call)
        yield from _by_import(side, file, call)
        yield from _in_started(side, file, call)
        yield from named_too_late(evidence, file, call)
    yield from _strangers(side)


def _called_again(side: Side, file: Module, node: ast.AST, seen: set[Function]) -> tuple[str, str] | None:
    """The function around a node, or one that calls it, that something outside of the project calls, and who does."""
    function = file.scope(node).frame.node
    if not isinstance(function, Function) or function in seen:
        return None
    seen.add(function)
    given = side.once(HandedOut).to(function)
    if given is not None:
        name = "a lambda" if isinstance(function, ast.Lambda) else f"{function.name}()"
        return name, unparse(given[1])[:60]
    above = (_called_again(side, site.file, site.call, seen) for site in side.above(function))
    return next((each for each in above if each is not None), None)


def _prepared_with(side: Side, file: Module, call: ast.Call) -> set[str]:
    """What is prepared in the scope that makes an Accelerator, as it is written there; if nothing is, no loop builds it."""
    scope = file.scope(call).frame
    found = {
        unparse(argument)
        for other, prepare in side.asked("prepare")
        if other is file and file.scope(prepare).frame is scope
        for argument in prepare.args
    }
    return found or {""}


def _repeats(side: Side, file: Module, node: ast.AST, objects: set[str], seen: set[Function]) -> bool:
    """Whether a loop makes it again for objects that were built outside of the loop."""
    scope = file.scope(node).frame
    graph = side.graph(scope)
    step = step_of(file, node, graph)
    if step is not None and graph.in_loop(step):
        loop = next((above for above in file.ancestors(step) if isinstance(above, _LOOPS)), None)
        if loop is not None and not objects <= _assigned(side, loop):
            return True
    function = scope.node
    if not isinstance(function, Function) or function in seen:
        return False
    seen.add(function)
    brought = objects - (_assigned(side, function) - set(parameter_names(function)))
    return bool(brought) and any(
        _repeats(side, site.file, site.call, _as_the_caller_says(function, site.call, brought), seen)
        for site in side.above(function)
    )


def _as_the_caller_says(function: Function, call: ast.Call, objects: set[str]) -> set[str]:
    given = {text: argument_of(function, call, text) for text in objects}
    return {unparse(argument) if argument is not None else text for text, argument in given.items()}


def _assigned(side: Side, node: ast.AST) -> set[str]:
    """What gets a value inside a loop or function, by anything but `prepare`."""
    prepares = {id(call) for _, call in side.asked("prepare")}
    return {
        unparse(target)
        for each in walk(node)
        if isinstance(each, ast.Assign) and id(each.value) not in prepares
        for listed in each.targets
        for target in (listed.elts if isinstance(listed, ast.Tuple) else [listed])
    }


def _asked_too_early(side: Side, file: Module, call: ast.Call) -> Found:
    """What reads `self.accelerator`, itself or in a method that it calls, before the attribute is set."""
    scope = file.scope(call).frame
    graph = side.graph(scope)
    made = step_of(file, call, graph)
    if not (isinstance(made, ast.Assign) and isinstance(made.targets[0], ast.Attribute)):
        return
    for other, node in side.calls:
        if other is not file or file.scope(node).frame is not scope:
            continue
        step = step_of(file, node, graph)
        if step is None or step is made or graph.dominates(made, step) or not graph.reachable(step, made):
            continue
        if _asks(node) or any(_reads(side, callee, set()) for callee in side.flows.callees.get(node, ())):
            yield file, node, f"`{unparse(node)[:60]}` would ask for the Accelerator before it is made"


def _asks(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and is_accelerator(part) for part in walk(node))


def _reads(side: Side, function: Function, seen: set[Function]) -> bool:
    """Whether a function reads an attribute that holds the Accelerator, itself or in what it calls."""
    if function in seen:
        return False
    seen.add(function)
    for node in walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_accelerator(node):
            return True
        if isinstance(node, ast.Call) and any(_reads(side, each, seen) for each in side.flows.callees.get(node, ())):
            return True
    return False


def _second(side: Side, file: Module, call: ast.Call) -> Found:
    scope = file.scope(call).frame
    graph = side.graph(scope)
    here = step_of(file, call, graph)
    for other_file, other in side.created:
        if other is not call and other_file is file and file.scope(other).frame is scope:
            there = step_of(file, other, graph)
            if here is not None and there is not None and graph.reachable(there, here):
                yield file, call, "a second Accelerator would be made after the first"


def _by_import(side: Side, file: Module, call: ast.Call) -> Found:
    """At module level each process that imports the file makes one: a loader's worker, or a script that wants a function."""
    if file.scope(call).frame.node is not file.tree or under_main(file, call):
        return
    for each in side.files:
        for node in each.walk(each.tree, ast.Call):
            if _spawns(each, node) and (each is file or file in side.program.imports(each)):
                yield (
                    file,
                    call,
                    f"a process that `{unparse(node)[:60]}` starts would import {file.path.name} and make an Accelerator",
                )
                return
    prepared = any(
        f is file and f.scope(c).frame.node is f.tree and not under_main(f, c) for f, c in side.asked("prepare")
    )
    importer = next((each for each in side.files if each is not file and file in side.program.imports(each)), None)
    if importer is not None and not prepared:
        yield file, call, f"{importer.path.name} imports {file.path.name}, which would make an Accelerator"


def _in_started(side: Side, file: Module, call: ast.Call) -> Found:
    """Processes that the script starts run the function that makes it, through a helper or straight: each has another one."""
    around, waiting = set[ast.AST](), [file.scope(call).frame.node]
    while waiting:
        function = waiting.pop()
        if isinstance(function, Function) and function not in around:
            around.add(function)
            waiting += [site.file.scope(site.call).frame.node for site in side.above(function)]
    for starter, start in side.of_library(*_STARTERS):
        helper = starter.scope(start).frame.node
        sites = [(site.file, site.call) for site in side.above(helper)] if isinstance(helper, Function) else []
        for other, node in [(starter, start), *sites]:
            handed = [*node.args, *[keyword.value for keyword in node.keywords]]
            if any(not around.isdisjoint(callables(side, other, argument)) for argument in handed):
                yield (
                    file,
                    call,
                    f"each process that `{unparse(node)[:60]}` starts would make an Accelerator for itself alone",
                )
                return


def _spawns(file: Module, node: ast.Call) -> bool:
    name = file.qualified(node.func) or ""
    if name in _STARTERS:
        return True
    if name.endswith((".set_start_method", ".get_context")):
        return any(isinstance(a, ast.Constant) and a.value in ("spawn", "forkserver") for a in node.args)
    return any(
        k.arg == "multiprocessing_context"
        and not (isinstance(k.value, ast.Constant) and k.value.value in (None, "fork"))
        for k in node.keywords
    )


def _strangers(side: Side) -> Found:
    """A backward pass by an Accelerator that has prepared nothing."""
    preparing = {
        made.node
        for file, call in side.asked("prepare")
        if isinstance(call.func, ast.Attribute)
        for made in side.flows.made(file, call.func.value, "accelerator")
    }
    for file, call in side.asked("backward"):
        assert isinstance(call.func, ast.Attribute)
        used = {made.node for made in side.flows.made(file, call.func.value, "accelerator")}
        if used and preparing and not used & preparing:
            yield file, call, "the backward pass asks an Accelerator that has prepared nothing"
        elif not used and side.created:
            yield file, call, "no Accelerator reaches this backward pass"


CONDITION = Condition(
    code="AM952",
    name="accelerator_created",
    summary="the Accelerator would be made too often, or by the wrong process",
    why="A training has one Accelerator. It is made once in a run, above the loop that it serves; a file that "
    "others import, or that a started process imports again, must not make one by being imported; a function that a "
    "library calls (a search for hyperparameters, a callback) is not known to run once; and the "
    "one that runs the backward pass is the one that prepared the model.",
    example_before="for epoch in range(9):\n    accelerator = Accelerator()\n    train(model, accelerator)",
    example_after="accelerator = Accelerator()\nfor epoch in range(9):\n    train(model, accelerator)",
    find=at_places("AM952", _found),
)
