"""AM962: a file that one process writes is read by all only once it is there, under the name that it has."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, step_of
from accel_migrate.check.named_alike import Names
from accel_migrate.check.path_uses import KEEPING, PathUses, is_command
from accel_migrate.check.paths import Paths, may_be_one, may_end_alike
from accel_migrate.check.stores import Stores
from accel_migrate.flow.calls import Place, Site
from accel_migrate.flow.cfg import Graph
from accel_migrate.flow.file_calls import LISTING, as_saved, folder_made, taken_away
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module, Scope

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
_CALLED_BY_NAME = frozenset(
    ["__init__", "__call__", "__new__", "__post_init__"]
)  # other methods `__so__` are called unseen
_MAPPINGS = frozenset(["get_state_dict", "state_dict", "dict"])
_OF_TENSORS = frozenset(
    ["numpy", "float", "long", "size", "shape", "dim", "unsqueeze", "squeeze", "view", "permute", "detach"]
)


class Path(NamedTuple):
    """A path in a call: what writes the file behind it, or may look at it."""

    file: Module
    call: ast.Call
    node: ast.expr


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    if side.created:
        yield from _Files(side).violations()


class _Files:
    """The files that one process writes, and who comes to look at them."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._paths, guards = Paths(side), side.once(Guards)
        uses = PathUses(side, guards, self._paths)
        outside = [(file, call) for file, call in side.calls if file in side.involved and uses.leaves(call)]
        alone = {call for file, call in outside if guards.of(file, call) is not None or _names_one(call)}
        self._saves = [Path(file, call, call.args[1]) for file, call in side.asked("save") if len(call.args) > 1]
        self._written = self._saves + [
            Path(f, c, path) for f, c in outside if c in alone for path in uses.written(f, c)
        ]
        self._taken_away = [
            Path(f, c, path) for f, c in outside if c in alone if (path := taken_away(c, f.qualified(c.func)))
        ]
        self._made_again = [
            Path(f, c, path)
            for f, c in outside
            if self._taken_away and c not in alone
            if (path := folder_made(c, f.qualified(c.func)))
        ]
        self._looked_at = [
            Path(f, c, path)
            for f, c in outside
            if self._written and c not in alone
            for path in uses.looked_at(f, c)
            if not isinstance(path, ast.Constant) or isinstance(path.value, str)
        ]
        self._guards = guards
        self._spelled: dict[ast.expr, frozenset[str]] = {}
        self._sources: dict[ast.expr, set[Place]] = {}

    def violations(self) -> Iterator[Violation]:
        meetings = _meetings(self._side) if self._looked_at or self._made_again else set()
        names = Names(self._side)
        told: set[ast.Call] = set()
        for use in self._looked_at:
            for write in self._written if use.call not in told else ():
                message = self._trouble(names, write, use, meetings) if self._may_be_one(write, use) else ""
                if message:
                    told.add(use.call)
                    yield Violation("AM962", use.file.path, use.call.lineno, message, cause=write.file.path)
        yield from self._chosen_too_early(meetings, told)
        yield from self._made_too_early(meetings)

    def _trouble(self, names: Names, write: Path, use: Path, meetings: set[ast.AST]) -> str:
        side = self._side
        later = _runs_after(side, {write.call}, {use.call})
        own = names.own(write.file, write.node) if later else ""
        if own:
            return (
                f"`{unparse(use.call)[:60]}` would look on all processes for what one of them wrote, under a name {own}"
            )
        what = f"`{unparse(use.call)[:60]}` would run on"
        if called_name(use.call) in KEEPING:
            what = f"`{unparse(use.node)}`, kept by `{called_name(use.call)}(...)`, could be read by"
        if later and _runs_after(side, {write.call}, {use.call}, meetings):
            return f"{what} all processes while one may still write the file"
        gone_on = _runs_after(side, {use.call}, {write.call}, meetings)
        if gone_on and not names.own(write.file, write.node):  # a name by the clock is that of a new file
            return (
                f"{what} all processes, of which one may go on and change the file before the others have come so far"
            )
        return ""

    def _may_be_one(self, write: Path, use: Path) -> bool:
        if write.call is use.call:
            return False
        if may_be_one(self._spellings(write), self._spellings(use)):
            return True
        alike = may_end_alike(self._spellings(write), self._spellings(use))
        if write in self._saves and use.file.qualified(use.call.func) == "torch.load":
            # Weights are not known to be others, but a tensor is not weights.
            return alike and not (_is_tensor(use.file, use.call) and self._is_mapping(write))
        return alike and not self._origins(write).isdisjoint(self._origins(use))

    def _is_mapping(self, write: Path) -> bool:
        """Whether what is saved is a dictionary: written out, or the weights of a model."""
        saved = write.call.args[0]
        values: list[ast.expr | None] = [saved]
        if isinstance(saved, ast.Name):
            stores = self._side.once(Stores).reaching(write.file, saved)
            values = [None if s.of or s.anywhere else s.value for s in stores if not s.at]
        return bool(values) and all(
            isinstance(each, ast.Dict) or (isinstance(each, ast.Call) and called_name(each) in _MAPPINGS)
            for each in values
        )

    def _spellings(self, path: Path) -> frozenset[str]:
        """As the path is put together; each word of a command."""
        if path.node not in self._spelled:
            spelled = self._paths.of(path.file, path.node)
            if is_command(path.file, path.call):
                spelled = frozenset(word for text in spelled for word in text.split())
            dotted = path.file.qualified(path.call.func)
            self._spelled[path.node] = frozenset(as_saved(text, dotted) for text in spelled)
        return self._spelled[path.node]

    def _origins(self, path: Path) -> set[Place]:
        if path.node not in self._sources:
            flows = self._side.flows
            self._sources[path.node] = flows.sources(flows.place(path.file, path.node)) - {"keyed"}
        return self._sources[path.node]

    def _made_too_early(self, meetings: set[ast.AST]) -> Iterator[Violation]:
        """Folders that all processes make while one may still be taking them away, with what the others put there."""
        for use in self._made_again:
            gone = {path.call for path in self._taken_away if self._may_be_one(path, use)}
            if gone and _runs_after(self._side, gone, {use.call}, meetings):
                message = (
                    f"`{unparse(use.call)[:60]}` would make a folder on all processes that one may still be taking away"
                )
                yield Violation("AM962", use.file.path, use.call.lineno, message)

    def _chosen_too_early(self, meetings: set[ast.AST], told: set[ast.Call]) -> Iterator[Violation]:
        """Lists of a folder in which a file is chosen for loading, and where one process may still write that file."""
        side, saves = self._side, {save.call for save in self._saves}
        loads = [(f, c) for f, c in side.calls if c.args and f.qualified(c.func) == "torch.load"] if saves else []
        if all(self._is_mapping(save) for save in self._saves):
            loads = [(f, c) for f, c in loads if not _is_tensor(f, c)]
        lists = [(f, c) for f, c in side.calls if called_name(c) in LISTING and c not in told] if loads else []
        for file, call in lists:
            chosen = side.flows.reached([side.flows.place(file, call)])
            if not any(side.flows.place(owner, load.args[0]) in chosen for owner, load in loads):
                continue
            if _runs_after(side, saves, {call}, meetings) and self._guards.of(file, call) is None:
                message = f"`{unparse(call)[:60]}` would list the files on all processes while one may still write one"
                yield Violation("AM962", file.path, call.lineno, message)


def _is_tensor(file: Module, load: ast.Call) -> bool:
    """`torch.load(path).numpy()`: a dictionary has no such method."""
    above = file.parents[load]
    return isinstance(above, ast.Attribute) and above.attr in _OF_TENSORS


def _names_one(call: ast.Call) -> bool:
    """`model.save_pretrained(folder, is_main_process=accelerator.is_main_process)`"""
    return any(keyword.arg == "is_main_process" for keyword in call.keywords)


def _meetings(side: Side) -> set[ast.AST]:
    """Statements that no process leaves before all have come to them, and calls of functions that always lead to one."""
    own = {call for _, call in side.asked(*_MEETING)} | _preparing(side)
    own |= {call for file, call in side.calls if file.qualified(call.func) == "accel_runtime.broadcast_object_list"}
    found: set[ast.AST] = {file.statement(call) for file, call in side.calls if call in own}
    pending = {call: file.statement(call) for file, call in side.calls if side.flows.callees.get(call)}
    while more := {
        call for call in pending if all(_leads_to(getattr(f, "body", ()), found) for f in side.flows.callees[call])
    }:
        found |= {pending.pop(call) for call in more}
    return {statement for statement in found if not hasattr(statement, "body")}


def _preparing(side: Side) -> set[ast.AST]:
    """The calls of prepare() that take a model: all processes come to them before one goes on."""
    return {made.node for each in side.runs_prepared.values() for made in each}


def _leads_to(block: object, meetings: set[ast.AST]) -> bool:
    """Whether a block has a meeting, or a loop with one in each round; a loop that goes no round at all has nothing to train."""
    if not isinstance(block, list):
        return False  # of a lambda
    return any(s in meetings or (isinstance(s, ast.For | ast.With) and _leads_to(s.body, meetings)) for s in block)


def _runs_after(
    side: Side, first: Collection[ast.Call], second: Collection[ast.Call], meetings: Collection[ast.AST] = ()
) -> bool:
    """Whether a scope does both, itself or in what it calls, and can come from one to the other without a meeting."""
    loops = [loop for loop in _loops(side) if any(each in meetings for each in loop.body)] if meetings else []

    def met(step: ast.stmt) -> list[ast.AST]:
        """Meetings, and loops with one in each round: to go through such a loop, outside of it, is to meet."""
        return [*meetings, *[loop for loop in loops if all(part is not step for part in walk(loop))]]

    beginning = _doing(side, first, lambda graph, step: graph.reachable_past(step, None, met(step)))
    ending = _doing(side, second, lambda graph, step: graph.reachable_past(None, step, met(step)))
    for scope, steps in beginning.items():
        graph = side.graph(scope)
        for one in steps:
            if any(graph.reachable_past(one, other, met(other)) for other in ending.get(scope, ())):
                return True
    return False


def _loops(side: Side) -> Iterator[ast.For]:
    for file in side.files:
        yield from (node for node in file.walk(file.tree, ast.For))


def _doing(
    side: Side, calls: Collection[ast.Call], is_callers: Callable[[Graph, ast.stmt], bool]
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
        scope = file.scope(call).frame
        step = step_of(file, call, side.graph(scope))
        if step is not None:
            found.setdefault(scope, []).append(step)
        if isinstance(scope.node, Function) and (step is None or is_callers(side.graph(scope), step)):
            waiting += [(site.file, site.call) for site in _callers(side, scope)]
    return found


def _callers(side: Side, scope: Scope) -> list[Site]:
    """Where a function is called; one that Python calls by itself, as `__getitem__`, where its object is made at the latest."""
    assert isinstance(scope.node, Function)
    owner, name = scope.parent, getattr(scope.node, "name", "")
    sites = side.above(scope.node)
    if sites or owner is None or not owner.is_class or not name.startswith("__") or name in _CALLED_BY_NAME:
        return sites
    return [Site(f, c) for f, c in side.calls if any(m.node is owner.node for m in side.flows.made(f, c.func, "class"))]


CONDITION = Condition(
    code="AM962",
    name="read_after_written",
    summary="a file would be read before it is written, or under another name",
    why="`accelerator.save`, and what stands under `is_main_process`, writes on one process while the others go on. What all "
    "processes hand to a function that may read it (any that is not known to do no such thing) must wait for it, and must be "
    "done with it before one changes it. And it must be known to have one name on all: written out, or made of options. A name "
    "by the clock differs where a second passes between two processes, and each has a temporary folder of its own.",
    example_before='accelerator.save(weights, "best.pt")\nweights = torch.load("best.pt")',
    example_after='accelerator.save(weights, "best.pt")\naccelerator.wait_for_everyone()\nweights = torch.load("best.pt")',
    find=find,
)
