"""AM962: a file that one process writes is read by all only once it is there, under the name that it has."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side, step_of
from accel_migrate.flow.calls import Place
from accel_migrate.flow.cfg import Graph
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
_READS = frozenset(
    {
        *("torch.load", "torch.jit.load", "numpy.load", "pandas.read_csv", "safetensors.torch.load_file"),
        *("os.path.getsize", "os.stat", "os.rename", "os.replace"),
        *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move"),
    }
)
_KNOWN = sys.stdlib_module_names | {
    "torch",
    "torchvision",
    "numpy",
    "wandb",
    "accel_runtime",
    "accelerate",
    "matplotlib",
}
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
_DRAWING = frozenset(["savefig", "save_image", "imsave", "imwrite"])
_LOOKING = frozenset(["imread"])
_TELLING = frozenset(["strftime", "isoformat"])


def find(project: Project) -> Iterator[Violation]:
    yield from _violations(project.evidence)
    yield from _pictures(project.evidence.after)
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


def _violations(evidence: Evidence) -> Iterator[Violation]:
    """Reads of a file that the script saves by one process, where nothing waits in between."""
    side = evidence.after
    saves = [(file, call) for file, call in side.asked("save") if len(call.args) > 1]
    if not saves:
        return
    for file, call in side.calls:
        if not call.args or not (file.qualified(call.func) in _READS or _may_read(side, file, call)):
            continue
        handed = side.flows.reached([side.flows.place(file, call.args[0])], computed=False)
        same = {
            save
            for owner, save in saves
            if _is_same_file(save.args[1], call.args[0]) or side.flows.place(owner, save.args[1]) in handed
        }
        if same and _runs_after(side, same, call, _meetings(side)) and Guards(side).of(file, call) is None:
            message = f"`{ast.unparse(call)[:60]}` would run on all processes while one may still write the file"
            yield Violation("AM962", file.path, call.lineno, message)
    yield from _listed_too_early(side, {save for _, save in saves})


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


def _pictures(side: Side) -> Iterator[Violation]:
    """Pictures that one process writes and all read back, by names that are put together of the same words."""
    drawn = [(f, c) for f, c in side.calls if _name(c) in _DRAWING]
    reads = [(f, c) for f, c in side.calls if _name(c) in _LOOKING and c.args] if drawn else []
    if not reads:
        return
    guards = Guards(side)
    written = {call for file, call in drawn if guards.of(file, call) is not None}
    writing = _doing(side, written, lambda graph, step: True)
    meetings = _meetings(side) if writing else set()
    for file, call in reads:
        scope = file.scope(call).function
        graph = side.graph(scope)
        step = step_of(file, call, graph)
        words = _words(file, scope, call)
        for one in writing.get(scope, ()) if step is not None else ():
            if one is step or not words & _words(file, scope, one) or not graph.reachable_past(one, step, meetings):
                continue
            if guards.of(file, call) is None:
                message = f"`{ast.unparse(call)[:60]}` would run on all processes while one may still write the picture"
                yield Violation("AM962", file.path, call.lineno, message)
                break


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _words(file: File, scope: Scope, node: ast.AST) -> set[str]:
    """The texts of which a statement, or what its names are set to in the same function, puts a path together."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    near = [
        other.value
        for other in file.of_kinds(ast.Assign)
        if isinstance(other, ast.Assign)
        and file.scope(other).function is scope
        and any(isinstance(target, ast.Name) and target.id in names for target in other.targets)
    ]
    texts = [part for each in (node, *near) for part in ast.walk(each) if isinstance(part, ast.Constant)]
    return {text.value for text in texts if isinstance(text.value, str) and len(text.value) > 3}


def _lists(file: File, call: ast.Call) -> bool:
    dotted = file.qualified(call.func)
    return dotted in _LISTS or (dotted is None and getattr(call.func, "attr", "") in _LISTING)


def _may_read(side: Side, file: File, call: ast.Call) -> bool:
    """Whether a function that is neither in sight nor a library's is handed a path: it may read what is there."""
    dotted = file.qualified(call.func) or "torch"
    return dotted.partition(".")[0] not in _KNOWN and not side.flows.callees.get(call) and _is_path(call.args[0])


def _is_path(node: ast.expr) -> bool:
    return not isinstance(node, ast.Name) and _file_name(node) is not None


def _is_same_file(written: ast.expr, read: ast.expr) -> bool:
    """By the text of the path, or by the name that both end in: `folder + '/best.pt'` and `'%s/best.pt' % folder`."""
    if ast.unparse(written) == ast.unparse(read):
        return True
    name = _file_name(written)
    return name is not None and name == _file_name(read)


def _file_name(path: ast.expr) -> str | None:
    """What a path ends in, where that is written out."""
    texts = [n for n in ast.walk(path) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    last = max(texts, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0), default=None)
    name = str(last.value).rpartition("/")[2] if last is not None else ""
    return name if "." in name.strip(".") and not any(mark in name for mark in "%{}") else None


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
    writing = _doing(side, saves, lambda graph, step: graph.reachable_past(step, None, meetings))
    reading = _doing(side, {load}, lambda graph, step: graph.reachable_past(None, step, meetings))
    for scope, first in writing.items():
        graph = side.graph(scope)
        for one in first:
            if any(one is not other and graph.reachable_past(one, other, meetings) for other in reading.get(scope, ())):
                return True
    return False


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
    why="`accelerator.save` writes on one process while the others go on. What all processes read back must wait for it, and "
    "have one name on all: a name by the clock differs where a second passes between two processes.",
    example_before='accelerator.save(weights, "best.pt")\nweights = torch.load("best.pt")',
    example_after='accelerator.save(weights, "best.pt")\naccelerator.wait_for_everyone()\nweights = torch.load("best.pt")',
    find=find,
)
