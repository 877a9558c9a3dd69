"""AM962: a file that one process writes is read by all only once it is there, under the name that it has."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, is_accelerator, step_of
from accel_migrate.check.paths import Paths, is_path, may_be_one
from accel_migrate.flow.calls import Place
from accel_migrate.flow.cfg import Graph
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import File, Function, Scope

# What each process finds out for itself: a name that is made of it is not the same on all.
_OWN = frozenset(
    [
        "time.time",
        "time.time_ns",
        "time.strftime",
        "time.ctime",
        "time.asctime",
        "uuid.uuid1",
        "uuid.uuid4",
        "os.getpid",
    ]
    + [f"datetime.{name}" for name in ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")]
    + ["tempfile.mkdtemp", "tempfile.mktemp", "secrets.token_hex"]
)
# What gets a path, and neither reads the file nor leaves one for others to read: texts, questions, folders, other writers.
_WRITES = frozenset({"savefig", "save_image", "imsave", "imwrite", "to_csv", "savez", "savetxt"})
_HARMLESS = _WRITES | {
    "print", "str", "repr", "format", "len", "isinstance", "getattr", "setattr", "max", "min", "sorted", "input", "exit",
    "range", "int", "float", "bool", "abs", "round", "sum", "any", "all", "type",
    "join", "joinpath", "dirname", "basename", "splitext", "abspath", "expanduser", "realpath", "normpath", "relpath",
    "with_name", "with_stem", "relative_to", "as_posix", "resolve", "absolute",
    "fspath", "with_suffix", "Path", "PurePath", "exists", "isfile", "isdir", "is_file", "is_dir", "access",
    "makedirs", "mkdir", "mkdir_p", "chdir", "time", "sleep", "system", "add_argument", "set_defaults", "tqdm", "trange",
    "info", "debug", "warning", "warn", "error", "critical", "log", "write", "set_description", "set_postfix",
    "SummaryWriter", "FileHandler", "RotatingFileHandler", "basicConfig", "CSVLogger", "title",
    "ValueError", "FileNotFoundError", "RuntimeError",
}  # fmt: skip
_OF_TEXTS = frozenset({
    "append", "extend", "insert", "add", "update", "setdefault", "get", "pop", "startswith", "endswith", "replace", "split",
    "rsplit", "strip", "rstrip", "lower", "upper",
})  # fmt: skip  # methods of texts and of what holds them
_KEEPS = frozenset({"Namespace", "SimpleNamespace", "EasyDict", "AttrDict", "edict", "dict", "partial"})  # for later
_MEETING = (
    "wait_for_everyone",
    "gather",
    "gather_for_metrics",
    "sum_for_metrics",
    "gather_object",
    "reduce",
    "broadcast",
    "backward",
)
_LISTS = frozenset(["glob.glob", "glob.iglob", "os.listdir", "os.scandir"])
_LISTING = frozenset(["glob", "rglob", "iterdir"])  # of a path
_TELLING = frozenset(["strftime", "isoformat"])


def find(project: Project) -> Iterator[Violation]:
    yield from _used_too_early(project.evidence.after)
    yield from _found_by_one(project.evidence.after)


def _found_by_one(side: Side) -> Iterator[Violation]:
    """Loads of what one process saved under a name that it made by its own clock, or by chance."""
    saves = [(file, call) for file, call in side.asked("save") if len(call.args) > 1]
    loads = [(f, c) for f, c in side.calls if c.args and f.qualified(c.func) == "torch.load"]
    own = _own_names(side) if saves and loads else set()
    written = {call for file, call in saves if side.flows.place(file, call.args[1]) in own}
    for file, call in loads if written else ():
        if side.flows.place(file, call.args[0]) not in own or Guards(side).of(file, call) is not None:
            continue
        if _runs_after(side, written, call):
            message = (
                f"`{ast.unparse(call)[:60]}` would look for what the main process saved under a name that each process "
                "makes for itself, by its clock or by chance"
            )
            yield Violation("AM962", file.path, call.lineno, message)


def _own_names(side: Side) -> set[Place]:
    seeds = [side.flows.place(file, call) for file, call in side.calls if _is_own(file, call)]
    return side.flows.reached(seeds)


def _is_own(file: File, call: ast.Call) -> bool:
    told = isinstance(call.func, ast.Attribute) and call.func.attr in _TELLING
    return told or file.qualified(call.func) in _OWN


def _used_too_early(side: Side) -> Iterator[Violation]:
    """Uses by all processes of a path that one process writes to, where nothing waits in between."""
    if not side.created:
        return
    guards, paths = Guards(side), Paths(side)
    saves = [(file, call, call.args[1]) for file, call in side.asked("save") if len(call.args) > 1]
    outside = [(file, call) for file, call in side.calls if file in side.involved and _may_touch(side, call)]
    alone = {call for file, call in outside if guards.of(file, call) is not None}
    written = [*saves, *[(f, c, path) for f, c in outside if c in alone for path in _paths(paths, f, c)]]
    used = [(f, c, path) for f, c in outside if c not in alone and _uses(c) for path in _given(c)]
    meetings = _meetings(side) if written and used else set()
    told: set[ast.Call] = set()
    for file, call, path in used if written else ():
        spelled = paths.of(file, path)
        handed = side.flows.reached([side.flows.place(file, path)], computed=False)
        same = {
            write
            for owner, write, to in written
            if may_be_one(spelled, paths.of(owner, to)) or side.flows.place(owner, to) in handed
        }
        if same and call not in told and _runs_after(side, same, call, meetings):
            told.add(call)
            what = f"`{ast.unparse(call)[:60]}` would run on"
            if _name(call) in _KEEPS:
                what = f"`{ast.unparse(path)}`, kept by `{_name(call)}(...)`, could be read by"
            message = f"{what} all processes while one may still write the file"
            yield Violation("AM962", file.path, call.lineno, message)
    yield from _listed_too_early(side, {save for _, save, _ in saves})


def _may_touch(side: Side, call: ast.Call) -> bool:
    """Whether a call leaves the project, so that it may read or write a file that it is given."""
    return not side.flows.callees.get(call) and not _asks_accelerator(call)


def _asks_accelerator(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and is_accelerator(call.func.value)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *[keyword.value for keyword in call.keywords]]


def _paths(paths: Paths, file: File, call: ast.Call) -> Iterator[ast.expr]:
    """What a call that one process alone makes may write to."""
    if _name(call) in _WRITES or not _is_harmless(call):
        yield from (argument for argument in _given(call) if is_path(paths.of(file, argument)))


def _is_harmless(call: ast.Call) -> bool:
    if _name(call) in _HARMLESS or _name(call).startswith("add_"):  # `writer.add_image("train/samples", ...)`
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in _OF_TEXTS


def _uses(call: ast.Call) -> bool:
    """Whether a call may read what it is given the path of; a file that it opens for writing is another question."""
    if _name(call) != "open":
        return not _is_harmless(call)
    modes = [argument for argument in _given(call)[1:2] if isinstance(argument, ast.Constant)]
    return not any(isinstance(mode.value, str) and mode.value[:1] in ("w", "a", "x") for mode in modes)


def _listed_too_early(side: Side, saves: set[ast.Call]) -> Iterator[Violation]:
    """Lists of a folder in which a file is chosen for loading, and where one process may still write that file."""
    loads = [(f, c) for f, c in side.calls if c.args and f.qualified(c.func) == "torch.load"]
    lists = [(f, c) for f, c in side.calls if _lists(f, c)] if loads else []
    for file, call in lists:
        chosen = side.flows.reached([side.flows.place(file, call)])
        if not any(side.flows.place(owner, load.args[0]) in chosen for owner, load in loads):
            continue
        if _runs_after(side, saves, call, _meetings(side)) and Guards(side).of(file, call) is None:
            message = f"`{ast.unparse(call)[:60]}` would list the files on all processes while one may still write one"
            yield Violation("AM962", file.path, call.lineno, message)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _lists(file: File, call: ast.Call) -> bool:
    dotted = file.qualified(call.func)
    return dotted in _LISTS or (dotted is None and getattr(call.func, "attr", "") in _LISTING)


def _meetings(side: Side) -> set[ast.AST]:
    """Statements that no process leaves before all have come to them, and calls of functions whose own block has one."""
    own = {call for _, call in side.asked(*_MEETING)}
    found: set[ast.AST] = {file.statement(call) for file, call in side.calls if call in own}
    found |= {
        file.statement(call)
        for file, call in side.calls
        for function in side.flows.callees.get(call, ())
        if not isinstance(function, ast.Lambda) and any(statement in found for statement in function.body)
    }
    return {statement for statement in found if not hasattr(statement, "body")}


def _runs_after(side: Side, saves: set[ast.Call], load: ast.Call, meetings: Collection[ast.AST] = ()) -> bool:
    """Whether a scope does both, itself or in what it calls, and can come from a save to the load without a meeting."""
    loops = [loop for loop in _loops(side) if any(each in meetings for each in loop.body)] if meetings else []

    def met(step: ast.stmt) -> list[ast.AST]:
        """Meetings, and loops with one in each round: to go through such a loop, outside of it, is to meet."""
        return [*meetings, *[loop for loop in loops if all(part is not step for part in walk(loop))]]

    writing = _doing(side, saves, lambda graph, step: graph.reachable_past(step, None, met(step)))
    reading = _doing(side, {load}, lambda graph, step: graph.reachable_past(None, step, met(step)))
    for scope, first in writing.items():
        graph = side.graph(scope)
        for one in first:
            if any(
                one is not other and graph.reachable_past(one, other, met(other)) for other in reading.get(scope, ())
            ):
                return True
    return False


def _loops(side: Side) -> Iterator[ast.For]:
    for file in side.files:
        yield from (node for node in file.of_kinds(ast.For) if isinstance(node, ast.For))


def _doing(
    side: Side, calls: set[ast.Call], is_callers: Callable[[Graph, ast.stmt], bool]
) -> dict[Scope, list[ast.stmt]]:
    """For each scope the steps that make one of these calls, or call what does as far as that concerns the caller."""
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
        if isinstance(scope.node, Function) and (step is None or is_callers(side.graph(scope), step)):
            waiting += [(site.file, site.call) for site in side.above(scope.node)]
    return found


CONDITION = Condition(
    code="AM962",
    name="read_after_written",
    summary="a file would be read before it is written, or under another name",
    why="`accelerator.save`, and what stands under `is_main_process`, writes on one process while the others go on. What all "
    "processes hand to a function that may read it (any that is not known to do no such thing) must wait for it, and "
    "have one name on all: a name by the clock differs where a second passes between two processes.",
    example_before='accelerator.save(weights, "best.pt")\nweights = torch.load("best.pt")',
    example_after='accelerator.save(weights, "best.pt")\naccelerator.wait_for_everyone()\nweights = torch.load("best.pt")',
    find=find,
)
