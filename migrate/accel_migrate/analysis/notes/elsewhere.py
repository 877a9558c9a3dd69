"""What the project's functions do in files that a training leaves as they are, and that every process does with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accel_migrate.analysis.notes.deeds import DEEDS, deed
from accel_migrate.analysis.storage.read_back import readers
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.imported import brought_by, idle_in, scripts_that_run
from accel_migrate.flow.closure import closure
from accel_migrate.flow.idle import Unit, unit_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Function, Module

_Place = tuple[Module, Function | None]  # a function, or the level of a file
_Call = tuple[Module, ast.Call]
IS_READ = ", which is read in the run"
_WRITES = ("writes a file", "saves something")
# Classes of libraries that call no method of those derived from them, but for `forward` and what Python calls itself.
_CALLING_NOTHING = {"object", "abc.ABC", "torch.nn.Module", "torch.utils.data.Dataset"}


def done_elsewhere(script: Script, training: Training, module: Module, run: ast.expr, prints_too: bool) -> str | None:
    """What a call, or a function that is handed on, does in a file that is not changed, each with the first place."""
    return _done(script, training, _calls(reached_elsewhere(script, training, module, run)), prints_too)


def done_by_callers(script: Script, training: Training, prints_too: bool) -> str | None:
    """The same of files that are not changed and call the training."""
    return _done(script, training, calls_of_callers(script, training), prints_too)


def calls_of_callers(script: Script, training: Training) -> list[_Call]:
    """What runs in files that are not changed and call the training: by themselves, and by what they call."""
    called = _trains(training)
    loaded = script.loaded(training)
    callers: list[_Place] = []
    for trains in called:
        for owner, call in script.graph.all_sites.get(trains) or _of_made_from_table(script, trains):
            calling = owner.scope(call).function
            own = owner in loaded and not _is_for_another(script, training, (owner, calling))
            if own and (owner, calling) not in callers:
                callers.append((owner, calling))
                called += [calling] if calling is not None else []
    changed = {module for each in script.trainings for module in each.modules}  # each is spoken of where it changes
    places = [(owner, function) for owner, function in callers if owner not in changed]
    for owner, function in tuple(places):
        calls = [call for call in owner.calls if owner.scope(call).function is function]
        places += [place for call in calls for place in reached_elsewhere(script, training, owner, call)]
    return _calls([place for place in places if not _is_for_another(script, training, place)])


def _of_made_from_table(script: Script, method: Function) -> Iterator[_Call]:
    """The calls by a method's name of objects of an unknown class: `net = nets[name](); net.fit(rows)`."""
    home = next(owner for owner in script.project.modules if method in owner.functions)
    if home.functions[method].owner_class is None:
        return
    for module, call in script.project.calls:
        made = module.only_value(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if called_name(call) == method.name and isinstance(made, ast.Call) and isinstance(made.func, ast.Subscript):
            if script.roles.target(module, call) is None:
                yield module, call


def _is_for_another(script: Script, training: Training, place: _Place) -> bool:
    """Whether a place is that of another training, which calls for itself what the two share."""
    module, function = place
    others = any(module in each.modules for each in script.trainings) and module not in training.modules
    if place == _home(training) or not (others or place in map(_home, script.trainings)):
        return False
    return _home(training)[1] not in script.graph.reached_from(function or module.tree, module)


def _home(training: Training) -> _Place:
    return training.place.module, training.place.module.scope(training.place.after).function


def _trains(training: Training) -> list[Function]:
    """The functions that a training is made and goes on in."""
    functions = [_home(training)[1], *[backward.function for backward in training.backwards]]
    return [function for function in dict.fromkeys(functions) if function is not None]


def done_on_import(script: Script, training: Training) -> str | None:
    """The same of files that are not changed and that are imported."""
    return _done(script, training, calls_on_import(script, training), prints_too=False)


def calls_on_import(script: Script, training: Training) -> list[_Call]:
    """What an import runs in files that are not changed: calls of their own level, and of the functions they lead to."""
    others = [m for m in brought_by(script.project, training.modules) if m not in training.modules]
    own = [(m, call) for m, call in _calls([(m, None) for m in others]) if not under_main(m, call)]
    reached = dict.fromkeys(each for m, call in own for each in reached_elsewhere(script, training, m, call))
    return [*own, *_calls([*reached])]


def _calls(places: Sequence[_Place]) -> list[_Call]:
    return [(m, call) for m, function in places for call in m.calls if m.scope(call).function is function]


def _done(script: Script, training: Training, calls: Sequence[_Call], prints_too: bool) -> str | None:
    found: dict[str, str] = {}
    for owner, call in calls:
        done = deed(script, training, owner, call) if training.flow.guard(owner, call) is None else None
        if done is not None and (prints_too or done != "prints"):
            read = done in _WRITES and read_in_run(script, training, owner, owner.statement(call)) is not None
            found.setdefault(done, f"{owner.source.path.name}:{call.lineno}{IS_READ if read else ''}")
    return " and ".join(f"{done} ({found[done]})" for done in DEEDS if done in found) if found else None


def done_by_all(script: Script, training: Training, module: Module, node: ast.AST) -> bool:
    """Whether every process may come to a node: the training may run it, and the author does not leave it to one of them."""
    if training.flow.only_main(module, node) or not may_run(script, training, module, node):
        return False
    return not any(isinstance(parent, ast.If) and _names_one_process(parent.test) for parent in module.ancestors(node))


def _names_one_process(test: ast.expr) -> bool:
    return any(word in unparse(test) for word in ("rank", "main_process", "master"))


def may_run(script: Script, training: Training, module: Module, node: ast.AST) -> bool:
    """Whether a run of the training may come to a node: not in a function that nobody is seen to call or to hand on.

    Nor under the main guard of a file that is only imported.
    """
    function = module.scope(node).function
    if function is None and under_main(module, node):
        return _starts(script, training, module)
    if unit_of(node, module.ancestors(node)) in _idle(training, script):
        return False
    if function is None:
        return module in script.loaded(training)
    own = {training.place.module.scope(training.place.after).function, *[b.function for b in training.backwards]}
    if function in own or function in training.timing.late or _is_called(script, training, function):
        return True
    return _is_passed_on(script, script.loaded(training), module, function)


def read_in_run(script: Script, training: Training, module: Module, written: ast.stmt) -> _Call | None:
    """A call that reads a file which a statement writes; what only another script runs comes when all is written."""
    return next((read for read in readers(script.graph, module, written) if may_run(script, training, *read)), None)


@once
def _idle(training: Training, script: Script) -> frozenset[Unit]:
    place, running = training.place, [(b.module, b.call) for b in training.backwards]
    return idle_in(script.project, place.module, [(place.module, place.after), *running])


def _is_called(script: Script, training: Training, function: Function) -> bool:
    """Whether a run of the training comes to a function; what only another script calls is no part of it."""
    loaded = script.loaded(training)

    def calls(site: _Call) -> list[_Call]:
        caller = site[0].scope(site[1]).function
        return [each for each in script.graph.all_sites.get(caller, ()) if each[0] in loaded]  # type: ignore[arg-type]

    own = [each for each in script.graph.all_sites.get(function, ()) if each[0] in loaded]
    return any(_runs_by_itself(script, training, loaded, *site) for site in closure(own, calls))


def _runs_by_itself(
    script: Script, training: Training, loaded: Sequence[Module], module: Module, call: ast.Call
) -> bool:
    """Whether a call runs when its file is loaded, on the way to the training, or in what anyone may call."""
    function = module.scope(call).function
    if function is None:
        return not under_main(module, call) or _starts(script, training, module)
    trains = set(_trains(training))
    if function in trains or trains & script.graph.reached_from(function, module):
        return True
    return _is_passed_on(script, loaded, module, function)


def _starts(script: Script, training: Training, module: Module) -> bool:
    """Whether a file is one that the training is started by."""
    return module in scripts_that_run(script.project, training.place.module, training.place.after)


def _is_passed_on(script: Script, modules: Sequence[Module], owner: Module, function: Function) -> bool:
    """Whether a function is named other than to call it, so that anyone may; a method, of an object that nobody can read.

    Python itself calls `__exit__`, and a library what a class has that is derived from one of its own.
    """
    kind = owner.parents[function]
    if isinstance(kind, ast.ClassDef):
        bases = script.project.base_names(Definition(owner, kind)) - _CALLING_NOTHING
        if bases or function.decorator_list or function.name.startswith("__") or function.name == "forward":
            return True
    return any(
        (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == function.name
        and not _is_another(script, module, name, of_object=isinstance(kind, ast.ClassDef))
        for module in modules
        for name in module.walk(module.tree, ast.Name, ast.Attribute)
    )


def _is_another(script: Script, module: Module, name: ast.AST, of_object: bool) -> bool:
    """Whether a name cannot be one for the function: it is called, which `_is_called` follows, or it is a library's."""
    parent = module.parents[name]
    if not isinstance(parent, ast.Call) or parent.func is not name:
        return of_object and isinstance(name, ast.expr) and module.qualified(name) is not None
    unread = module.qualified(parent.func) is None and script.roles.target(module, parent) is None
    return not of_object or not unread


def reached_elsewhere(
    script: Script, training: Training, module: Module, run: ast.expr
) -> list[tuple[Module, Function]]:
    """The functions of files that are not changed that a call, or a name of one, runs on every process, the nearest first."""
    call = run if isinstance(run, ast.Call) else None
    target = script.roles.target(module, call) if call is not None else script.project.definition(module, run)
    if target is not None and isinstance(target.node, ast.ClassDef):
        target = script.roles.project.initializer(target)
    if target is None or isinstance(target.node, ast.ClassDef) or target.module in training.modules:
        return []
    owners = {function: owner for owner in script.project.modules for function in owner.functions}

    def called(function: Function) -> list[Function]:
        found = (*script.graph.callees.get(function, ()), *_handed_on(script, owners[function], function))
        own = [each for each in found if not _is_for_another(script, training, (owners[each], each))]
        return [each for each in own if not _guarded(script, training, function, each)]

    first = [target.node] if not _is_for_another(script, training, (target.module, target.node)) else []
    return [(owners[f], f) for f in closure(first, called) if owners[f] not in training.modules]


@once
def _handed_on(script: Script, module: Module, function: Function) -> list[Function]:
    """The functions that another one names and does not call itself, so that whoever gets them may: `partial(write, path)`."""
    names = module.walk(function, ast.Name, ast.Attribute)
    given = [name for name in names if getattr(module.parents[name], "func", None) is not name]
    found = [script.project.definition(module, name) for name in given if isinstance(name.ctx, ast.Load)]
    return [target.node for target in found if target is not None and not isinstance(target.node, ast.ClassDef)]


def _guarded(script: Script, training: Training, function: Function, callee: Function) -> bool:
    """Whether a function calls another one under a condition on the rank alone."""
    sites = [(m, c) for m, c in script.graph.all_sites.get(callee, ()) if m.scope(c).function is function]
    return bool(sites) and all(training.flow.guard(module, call) is not None for module, call in sites)
