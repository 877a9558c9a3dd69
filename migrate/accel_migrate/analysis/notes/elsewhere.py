"""What the project's functions do in files that a training leaves as they are, and that every process does with them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accel_migrate.analysis.placement.reach import under_main
from accel_migrate.analysis.storage.files import (
    makes_folder,
    opens_events,
    opens_log,
    runs_command,
    saves,
    tracker,
    writes,
    writes_memory,
)
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.imported import brought_by, loaded_with
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Function, Module

_ASKS = {
    "getpass.getpass", "sys.stdin.readline", "sys.stdin.read", "click.prompt", "click.confirm", "pdb.set_trace", "ipdb.set_trace",
}  # fmt: skip
_WINDOWS = {"matplotlib.pyplot.show", "matplotlib.pylab.show", "pylab.show", "cv2.imshow", "cv2.waitKey"}
_CATCHING = {"EOFError", "Exception", "BaseException"}
_Place = tuple[Module, Function | None]  # a function, or the level of a file
_Call = tuple[Module, ast.Call]
# What must not be done N times, the gravest first.
_DEEDS = (
    "writes a file",
    "makes a folder",
    "opens a log file",
    "opens an event file",
    "logs to a tracker",
    "runs a command",
    "asks at the terminal",
    "opens a window",
    "prints",
)


def done_elsewhere(script: Script, training: Training, module: Module, call: ast.Call, prints_too: bool) -> str | None:
    """What a call writes, or prints, in a file that is not changed, each with the first place that does."""
    return _done(script, training, _calls(reached_elsewhere(script, training, module, call)), prints_too)


def done_by_callers(script: Script, training: Training, prints_too: bool) -> str | None:
    """The same of files that are not changed and call the training."""
    return _done(script, training, calls_of_callers(script, training), prints_too)


def calls_of_callers(script: Script, training: Training) -> list[_Call]:
    """What runs in files that are not changed and call the training: by themselves, and by what they call."""
    called = _trains(training)
    loaded = loaded_with(script.project, training.place.module)
    callers: list[_Place] = []
    for trains in called:
        for owner, call in script.graph.all_sites.get(trains, ()):
            calling = owner.scope(call).function
            own = owner in loaded and not _is_for_another(script, training, (owner, calling))
            if own and (owner, calling) not in callers:
                callers.append((owner, calling))
                called += [calling] if calling is not None else []
    places = [(owner, function) for owner, function in callers if owner not in training.modules]
    for owner, function in tuple(places):
        calls = [call for call in owner.calls if owner.scope(call).function is function]
        places += [place for call in calls for place in reached_elsewhere(script, training, owner, call)]
    return _calls([place for place in places if not _is_for_another(script, training, place)])


def _is_for_another(script: Script, training: Training, place: _Place) -> bool:
    """Whether a place is that of another training, which calls for itself what the two share."""
    module, function = place
    if place == _home(training) or place not in map(_home, script.trainings):
        return False
    return _home(training)[1] not in script.graph.reached_from(function or module.tree, script.roles, module)


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
        deed = _deed(script, owner, call) if training.flow.guard(owner, call) is None else None
        if deed is not None and (prints_too or deed != "prints"):
            found.setdefault(deed, f"{owner.source.path.name}:{call.lineno}")
    return " and ".join(f"{deed} ({found[deed]})" for deed in _DEEDS if deed in found) or None


def _deed(script: Script, module: Module, call: ast.Call) -> str | None:
    written = writes(module, call) or saves(script.graph, module, call) or _saves_unseen(script, module, call)
    questions = (
        written and not writes_memory(script.graph, module, call),
        makes_folder(module, call),
        opens_log(module, call),
        opens_events(script.roles, module, call),
        tracker(module, call) is not None or module.qualified(call.func) == "wandb.init",
        runs_command(module, call),
        asks(module, call),
        opens_window(module, call),
        shows(module, call),
    )
    return next((deed for deed, is_done in zip(_DEEDS, questions, strict=True) if is_done), None)


def _saves_unseen(script: Script, module: Module, call: ast.Call) -> bool:
    """`shown.save(path)` of an object that nobody can read: what has such a method and is given something writes a file."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "save" and bool(call.args or call.keywords)
    return is_method and module.qualified(call.func) is None and script.roles.target(module, call) is None


def may_run(script: Script, training: Training, module: Module, node: ast.AST) -> bool:
    """Whether a run of the training may come to a node: not in a function that nobody is seen to call or to hand on.

    Nor under the main guard of a file that is only imported.
    """
    function = module.scope(node).function
    if function is None and under_main(module, node):
        return _starts(script, training, module)
    if function is None or module.scope(node).owner_class is not None or is_called(script, training, function):
        return True
    return _is_passed_on(loaded_with(script.project, training.place.module), function)


def is_called(script: Script, training: Training, function: Function) -> bool:
    """Whether a run of the training comes to a function; what only another script calls is no part of it."""
    loaded = loaded_with(script.project, training.place.module)
    pending = [function]
    for each in pending:
        for owner, call in script.graph.all_sites.get(each, ()):
            caller = owner.scope(call).function
            if owner not in loaded or caller in pending:
                continue
            if _runs_by_itself(script, training, loaded, owner, call):
                return True
            pending += [caller] if caller is not None else []
    return False


def _runs_by_itself(
    script: Script, training: Training, loaded: Sequence[Module], module: Module, call: ast.Call
) -> bool:
    """Whether a call runs when its file is loaded, on the way to the training, or in what anyone may call."""
    function = module.scope(call).function
    if function is None:
        return not under_main(module, call) or _starts(script, training, module)
    trains = set(_trains(training))
    if function in trains or trains & script.graph.reached_from(function, script.roles, module):
        return True
    return module.functions[function].owner_class is not None or _is_passed_on(loaded, function)


def _starts(script: Script, training: Training, module: Module) -> bool:
    """Whether a file is one that the training is started by."""
    return module is training.place.module or training.place.module in brought_by(script.project, [module])


def _is_passed_on(modules: Sequence[Module], function: Function) -> bool:
    """Whether a function is named other than to call it, so that anyone may."""
    return any(
        isinstance(name, ast.Name | ast.Attribute)
        and (name.attr if isinstance(name, ast.Attribute) else name.id) == function.name
        and not (isinstance(parent := module.parents[name], ast.Call) and parent.func is name)
        for module in modules
        for name in module.walk(module.tree, ast.Name, ast.Attribute)
    )


def reached_elsewhere(
    script: Script, training: Training, module: Module, call: ast.Call
) -> list[tuple[Module, Function]]:
    """The functions of files that are not changed that a call runs on every process, the nearest first."""
    target = script.roles.target(module, call)
    if target is not None and isinstance(target.node, ast.ClassDef):
        target = script.roles.project.initializer(target)
    if target is None or isinstance(target.node, ast.ClassDef) or target.module in training.modules:
        return []
    owners = {function: owner for owner in script.project.modules for function in owner.functions}
    pending: list[Function] = [target.node]
    for function in pending:
        pending += [
            callee
            for callee in script.graph.callees.get(function, ())
            if callee not in pending and not _guarded(script, training, function, callee)
        ]
    return [(owners[f], f) for f in pending if owners[f] not in training.modules]


def _guarded(script: Script, training: Training, function: Function, callee: Function) -> bool:
    """Whether a function calls another one under a condition on the rank alone."""
    sites = [(m, c) for m, c in script.graph.all_sites.get(callee, ()) if m.scope(c).function is function]
    return bool(sites) and all(training.flow.guard(module, call) is not None for module, call in sites)


def asks(module: Module, call: ast.Call) -> bool:
    """`input()` and the like, which of N processes only the one that has the terminal is answered."""
    if module.qualified(call.func) in _ASKS:
        return True
    return (
        isinstance(call.func, ast.Name)
        and call.func.id in ("input", "breakpoint")
        and module.resolve(call.func.id, module.scope(call)) is None
    )


def goes_on_without_answer(module: Module, call: ast.Call) -> bool:
    """Whether a script catches that nobody answers, and does not end by it."""
    inner: ast.AST = call
    for parent in module.ancestors(call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(parent, ast.Try) and inner in parent.body:
            for handler in parent.handlers:
                caught = [handler.type] if handler.type is not None else []
                names = {unparse(n) for kind in caught for n in (kind.elts if isinstance(kind, ast.Tuple) else [kind])}
                if not caught or names & _CATCHING:
                    return not any(_ends(node) for node in module.walk(handler))
        inner = parent
    return False


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (
        isinstance(node, ast.Call) and unparse(node.func) in ("exit", "quit", "sys.exit", "os._exit")
    )


def opens_window(module: Module, call: ast.Call) -> bool:
    """`plt.show()`, which waits until someone closes it."""
    return module.qualified(call.func) in _WINDOWS


def shows(module: Module, call: ast.Call) -> bool:
    """Whether a call prints, or writes to the terminal by itself."""
    if module.qualified(call.func) in ("sys.stdout.write", "sys.stderr.write", "pprint.pprint", "pprint.pp"):
        return True
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "print"
        and module.resolve("print", module.scope(call)) is None
        and all(_is_terminal(module, keyword.value) for keyword in call.keywords if keyword.arg == "file")
    )


def _is_terminal(module: Module, file: ast.expr) -> bool:
    """`sys.stdout`, or a variable that may be it."""
    variable = module.variable(file) if isinstance(file, ast.Name) else None
    values = [file] if variable is None else [b.value for b in module.bindings(variable) if b.value is not None]
    return any(
        isinstance(part, ast.Attribute) and module.qualified(part) in ("sys.stdout", "sys.stderr")
        for value in values
        for part in module.walk(value)
    )
