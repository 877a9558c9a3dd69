"""Which of the files that a training writes can be left to the main process, and why others cannot."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.notes.elsewhere import done_by_all, read_in_run
from accel_migrate.analysis.notes.weights_by_hand import weights_by_hand
from accel_migrate.analysis.storage.about_files import asks_and_writes, only_writes
from accel_migrate.analysis.storage.files import Written, downloads, runs_model
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.flow.nodes import calls_method, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module

# Methods of lists, dictionaries, sets and queues that change them.
_CHANGING = frozenset({
    "append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "clear", "add", "discard", "update",
    "setdefault", "sort", "reverse", "rotate",
})  # fmt: skip


_GATHERED = "weights are read in it, which all processes must gather together under --strategy fsdp"


@dataclass(frozen=True, eq=False)
class Writing:
    """A statement that every process would run: `spelled` is the Accelerator there, `trouble` what keeps it from a guard."""

    statement: ast.stmt
    spelled: str | None
    trouble: str
    ahead: ast.expr | None = (
        None  # an argument that all processes must work out: it changes what they read, runs a model or reads its weights
    )
    name: str = "taken"  # of that argument


@once
def writings(script: Script, training: Training, module: Module) -> list[Writing]:
    """What writes files in a module, other than weights, which all processes must collect first; of a whole, not its parts."""
    found = list(_writings(script, training, module))
    wholes = [one.statement for one in found if one.spelled is not None and not one.trouble]
    return [one for one in found if not any(w is not one.statement and module.holds(w, one.statement) for w in wholes)]


def _writings(script: Script, training: Training, module: Module) -> Iterator[Writing]:
    saves = [save for each in script.trainings for save in each.storage.saves if save.module is module]
    saved = {save.opened or module.statement(save.call) for save in saves}
    seen: set[ast.stmt] = set()
    for written in training.storage.written:
        statement = written.statement
        lifted = _calls(script, training, written)
        for owner, call in lifted:
            spelled = training.ready(module, call) if owner is module and call not in seen else None
            if spelled is not None:
                seen.add(call)
                yield _writing(script, training, module, Written(module, call), spelled)
        if (
            not lifted
            and written.module is module
            and statement not in saved
            and concerns(script, training, module, statement)
        ):
            spelled = training.ready(module, statement)
            if spelled is not None or not any(each.ready(module, statement) for each in script.trainings):
                found = _writing(script, training, module, _whole(script, training, written), spelled)
                if found.statement not in seen:
                    seen.add(found.statement)
                    yield found


def _calls(script: Script, training: Training, written: Written) -> list[tuple[Module, ast.stmt]]:
    """The calls of a function that only writes and has no Accelerator, where all of them have one: they get the guard."""
    function = written.module.scope(written.statement).function
    if (
        not isinstance(function, ast.FunctionDef)
        or training.reach.spelled(written.module, written.statement) is not None
    ):
        return []
    sites = script.graph.all_sites.get(function, [])
    named = [
        node
        for module in script.project.modules
        for node in module.walk(module.tree, ast.Name, ast.Attribute)
        if (node.id if isinstance(node, ast.Name) else node.attr) == function.name
        if (known := script.project.definition(module, node)) is None or known.node is function
    ]
    own = [
        each.statement for each in training.storage.written if each.module.scope(each.statement).function is function
    ]
    if any(read_in_run(script, training, written.module, statement) is not None for statement in own):
        return []
    everywhere = all(any(_may_be_guarded(script, each, *site) for each in script.trainings) for site in sites)
    if len(named) != len(sites) or not everywhere:
        return []
    return [(owner, owner.statement(call)) for owner, call in sites] if only_writes(written.module, function) else []


def _may_be_guarded(script: Script, training: Training, module: Module, call: ast.Call) -> bool:
    statement = module.parents[call]
    return (
        isinstance(statement, ast.Expr)
        and training.ready(module, call) is not None
        and done_by_all(script, training, module, call)
        and not _writing(script, training, module, Written(module, statement), None).trouble
    )


def _whole(script: Script, training: Training, written: Written) -> Written:
    """With the `if` around it that asks for the file, where all of that can go under a guard."""
    for around in reversed(asks_and_writes(written.module, written.statement)):
        whole = Written(written.module, around)
        ready = training.ready(written.module, around) is not None
        if (
            ready
            and not _trouble(script, written.module, whole)
            and not any(_changed(training, written.module, around))
        ):
            return whole
    return written


def _writing(script: Script, training: Training, module: Module, written: Written, spelled: str | None) -> Writing:
    gathers = [] if training.wraps_models else weights_by_hand(script, training, module)
    calls = module.walk(written.statement, ast.Call)
    runs = [call for call in calls if call in gathers or runs_model(script.roles, module, call)]
    ahead = _argument(written.statement)
    made = next(
        (each for each in _arguments(written.statement) if runs and all(module.holds(each, r) for r in runs)), None
    )
    if made is not None and not _trouble(script, module, written, made) and not any(_changed(training, module, made)):
        return Writing(written.statement, spelled, "", made, "output")
    trouble = _trouble(script, module, written) or (_GATHERED if runs else "")
    above = module.scope(written.statement).function is not None and not training.timing.after_prepare(
        module, written.statement
    )
    if not trouble and above and read_in_run(script, training, module, written.statement) is not None:
        trouble = "each may read it when another has written it"
    changed = [] if trouble else list(_changed(training, module, written.statement))
    if changed and ahead is not None and all(module.holds(ahead, each) for each in changed):
        return Writing(written.statement, spelled, "", ahead)
    if changed:
        trouble = f"`{unparse(changed[0])}`, which is changed in it, is read outside of it"
    return Writing(written.statement, spelled, trouble)


def _argument(statement: ast.stmt) -> ast.expr | None:
    """`kept.pop(0)` of `os.remove(kept.pop(0))`."""
    match statement:
        case ast.Expr(value=ast.Call(args=[ast.Call() as argument], keywords=[])):
            return argument
    return None


def _arguments(statement: ast.stmt) -> list[ast.expr]:
    """What `save(sample(net), path)` hands over, each of which can be worked out above it, also of one in a `with`."""
    match statement:
        case ast.With(body=[ast.Expr() as inner]):
            bound = {
                part.id for part in walk(statement) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
            own = [each for each in _arguments(inner) if isinstance(each, ast.Call | ast.Attribute | ast.BinOp)]
            return [each for each in own if bound.isdisjoint(n.id for n in walk(each) if isinstance(n, ast.Name))]
        case ast.Expr(value=ast.Call(args=given, keywords=named)) if not any(isinstance(a, ast.Starred) for a in given):
            return [*given, *[keyword.value for keyword in named if keyword.arg is not None]]
    return []


def written_once(script: Script, training: Training, module: Module) -> list[ast.stmt]:
    """Those that come under a guard, with all that stands in them."""
    return [w.statement for w in writings(script, training, module) if w.spelled is not None and not w.trouble]


def is_done_once(script: Script, training: Training, module: Module, node: ast.AST) -> bool:
    """Whether a node comes under a guard, itself or with every call of its function."""
    if any(module.holds(statement, node) for statement in written_once(script, training, module)):
        return True
    sites = script.graph.all_sites.get(module.scope(node).function, [])  # type: ignore[arg-type]
    return bool(sites) and all(
        any(owner.holds(statement, call) for statement in written_once(script, training, owner))
        for owner, call in sites
    )


def concerns(script: Script, training: Training, module: Module, statement: ast.stmt) -> bool:
    """Whether the training runs it on every process, and no other rule speaks of it."""
    function = module.scope(statement).function
    sets_up = function is training.place.module.scope(training.place.after).function
    if function is not None and not sets_up and not training.timing.after_prepare(module, statement):
        if any(downloads(module, node) for node in module.walk(function, ast.Call)):
            return False  # another rule speaks of the download as a whole
    return not _saves_model(training, module, statement) and done_by_all(script, training, module, statement)


def _saves_model(training: Training, module: Module, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not calls_method(call, "save_pretrained"):
        return False
    return training.timing.after_prepare(module, call) and training.holds(module.variable(call.func.value))


def _trouble(script: Script, module: Module, written: Written, ahead: ast.expr | None = None) -> str:
    """Why the statement cannot simply go under a guard, but for what is worked out ahead of it; empty if it can."""
    if written.kept:
        return "what it opens is written to later, or its result is used"
    for node in walk(written.statement):
        if ahead is not None and module.holds(ahead, node):
            continue
        if isinstance(node, ast.Call) and runs_model(script.roles, module, node):
            return "a model runs in it, which all processes must do together"
        if isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue):
            return "the flow of the script depends on it"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _is_read_later(module, written, node):
            return f"`{node.id}`, which is set in it, is read later"
    return ""


def _changed(training: Training, module: Module, statement: ast.stmt | ast.expr) -> Iterator[ast.expr]:
    """The objects from outside that a statement changes, and that are read where every process comes by."""
    guarded = [one.statement for one in training.storage.written if one.module is module and not one.kept]
    for node in module.walk(statement, ast.Call, ast.Attribute, ast.Subscript):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as changed, attr=name)):
                changes = name in _CHANGING and module.qualified(node.func) is None
            case ast.Call(func=ast.Name(id="next"), args=[ast.Name() | ast.Attribute() as changed, *_]):
                changes = True
            case ast.Subscript(value=ast.Name() | ast.Attribute() as changed, ctx=ast.Store() | ast.Del()):
                changes = True
            case ast.Attribute(ctx=ast.Store()) as changed:
                changes = True
            case _:
                continue
        if changes and not _is_made_in(module, statement, changed) and _is_read(module, changed, guarded):
            yield changed


def _is_made_in(module: Module, statement: ast.AST, node: ast.expr) -> bool:
    bindings = module.bindings_of(node) if isinstance(node, ast.Name) else []
    return bool(bindings) and all(module.holds(statement, binding.statement) for binding in bindings)


def _is_read(module: Module, changed: ast.expr, guarded: list[ast.stmt]) -> bool:
    """Whether an object is read elsewhere, other than to change it: an attribute of whatever object, under its name."""
    variable = module.variable(changed)
    for node in module.walk(module.tree, type(changed)):
        assert isinstance(node, ast.Name | ast.Attribute)
        same = module.variable(node) == variable if isinstance(node, ast.Name) else node.attr == changed.attr  # type: ignore[attr-defined]
        if not same or not isinstance(node.ctx, ast.Load) or any(module.holds(each, node) for each in guarded):
            continue
        above = module.parents[node]
        call = module.parents[above] if isinstance(above, ast.Attribute) and above.attr in _CHANGING else None
        if call is None or not isinstance(module.parents[call], ast.Expr):
            return True
    return False


def _is_read_later(module: Module, written: Written, stored: ast.Name) -> bool:
    """Whether what the statement sets a name to may be read outside of it."""
    inside, variable = set(walk(written.statement)), module.variable(stored)
    return variable is not None and any(
        binding.statement in inside
        for node in module.reads(variable)
        if isinstance(node, ast.Name) and node not in inside
        for binding in reaching(module, node)
    )
