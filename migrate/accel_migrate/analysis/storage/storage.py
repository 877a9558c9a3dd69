"""What a training keeps on disk, seen as a whole: what is saved, written and read back once its objects are prepared."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.storage.files import Save, Written, saves_in, written_in
from accel_migrate.analysis.storage.loading import Load, StateLoaded, loads_in, states_loaded_in
from accel_migrate.analysis.storage.states import (
    Lifted,
    StateTaken,
    collected,
    is_changed,
    is_same,
    same_models,
    states_taken,
)
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, arguments_of
from accel_migrate.analysis.values.sources import contents
from accel_migrate.flow.nodes import called_name, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition, Program
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import may_follow


@dataclass(frozen=True, eq=False)
class Storage:
    held: frozenset[Variable]  # every variable that holds a prepared object, those handed on after prepare included
    models: frozenset[Variable]  # every variable that holds a prepared model, or a part of one, under any name
    saves: tuple[Save, ...]
    taken: tuple[StateTaken, ...]
    left: tuple[tuple[Module, ast.Call], ...]  # where those are taken or saved that a function called has prepared
    written: tuple[Written, ...]
    loads: tuple[Load, ...]
    behind: frozenset[ast.Call]  # those that may come to a file which another process of this run still writes
    loaded: tuple[StateLoaded, ...]  # past a wrapper

    @property
    def needs(self) -> list[tuple[Module, ast.AST]]:
        """Where the Accelerator must be in reach: without it each process would write, or miss a wrapper's keys."""
        found: list[Save | StateTaken | StateLoaded] = [*self.saves, *self.taken, *self.loaded]
        return [(one.module, one.call) for one in found]

    @property
    def gone(self) -> set[ast.AST]:
        """Expressions that are no longer read once weights are loaded to the CPU."""
        locations = [load.location for load in self.loads if load.lands_on_cpu and load.location is not None]
        return {node for location in locations for node in walk(location)} | self.hoisted

    @property
    def hoisted(self) -> set[ast.AST]:
        """Expressions that go with guards, or in calls that a collected state takes the place of."""
        calls = {node for one in self.taken if one.ahead is not None for node in walk(one.call.func)}
        return calls | {node for one in self.lifted for part in one.parts for node in walk(part)}

    @property
    def lifted(self) -> list[Lifted]:
        """The guards that go, each once."""
        return list({one.guard: one for taken in self.taken for one in taken.lifted}.values())

    def runs_everywhere(self, module: Module, node: ast.AST) -> bool:
        """Whether a node stands in a function that only the main process called, and that all call from now on."""
        function = module.scope(node).function
        return any(
            one.lifted and one.ahead is None and one.module.scope(one.call).function is function for one in self.taken
        )

    def waits(self, load: Load) -> bool:
        """Whether a file may be read that another process of this run is still writing."""
        return load.late and load.call in self.behind


def find_storage(
    graph: CallGraph, flow: RankFlow, timing: Timing, held: frozenset[Variable], wraps: bool, following: bool
) -> Storage:
    """`held` are the variables that hold a prepared object; `wraps`: models are in a wrapper on several processes.

    `following`: also where a function that prepares has come back.
    """
    everywhere = graph.roles.project.modules
    models = same_models(graph, held)
    saves = [
        save
        for module in everywhere
        for save in saves_in(graph, flow, timing, module)
        if timing.after_prepare(module, save.call) or _keeps_model(graph, save, models)
    ]
    optimizers = frozenset(variable for variable in held if graph.roles.of(variable) & Role.OPTIMIZER)
    states = [state for module in everywhere for state in states_taken(timing, module, models, optimizers)]
    met = [(save.module, save.call) for save in saves] + [(one.module, one.call) for one in states if one.of_model]
    left = [] if following else [each for each in met if not timing.after_prepare(*each)]
    saves = [one for one in saves if following or timing.after_prepare(one.module, one.call)]
    states = [one for one in states if following or timing.after_prepare(one.module, one.call)]
    written = tuple(written for module in everywhere for written in written_in(graph, flow, module))
    plain = {save.statement for save in saves if save.plain}  # which the Accelerator writes
    guarded: list[Save | Written] = [save for save in saves if not save.plain]
    guarded += [one for one in written if not one.kept and one.statement not in plain]
    taken = [_before_guards(collected(flow, graph, state), guarded) for state in states]
    loads = tuple(load for module in everywhere for load in loads_in(graph.roles, timing, module))
    return Storage(
        held,
        models,
        tuple(saves),
        tuple(one for one in taken if one.of_model or one.ahead is not None or one.lifted),
        tuple(left),
        written,
        loads,
        frozenset(load.call for load in loads if any(_is_behind(graph, load, save) for save in saves)),
        tuple(one for module in everywhere if wraps for one in states_loaded_in(graph.roles, timing, module, held)),
    )


def _is_behind(graph: CallGraph, load: Load, save: Save) -> bool:
    """Whether a file may be read when something has been saved: not where a script resumes before its loop."""
    saving, loading = _run_by(graph, save.module, save.call), _run_by(graph, load.module, load.call)
    if saving is None or loading is None:
        return True
    together = [(one, other) for one in saving for other in loading if _are_in_one_frame(one, other)]
    return not together or any(_may_come_after(*one, other[1]) for one, other in together)


def _are_in_one_frame(one: tuple[Module, ast.Call], other: tuple[Module, ast.Call]) -> bool:
    return one[0].scope(one[1]).frame is other[0].scope(other[1]).frame


def _may_come_after(module: Module, first: ast.Call, second: ast.Call) -> bool:
    both = first is not second and module.statement(first) is module.statement(second)
    return both or may_follow(module, first, second)


@once
def _run_by(graph: CallGraph, module: Module, call: ast.Call) -> list[tuple[Module, ast.Call]] | None:
    """A call with those that run it, in function after function; None where one is handed on or nobody is seen to call it."""
    found = [(module, call)]
    for owner, each in found:
        function = owner.scope(each).frame.node
        if isinstance(function, ast.FunctionDef):
            sites = graph.all_sites.get(function, [])
            if not sites or _may_run_unseen(graph, owner, function, {site.func for _, site in sites}):
                return None
            found += [site for site in sites if site not in found]
    return found


def _may_run_unseen(graph: CallGraph, module: Module, function: ast.FunctionDef, called: set[ast.expr]) -> bool:
    """Whether a function is named but where it is called; no method of whatever object is a function of a file."""
    named = _names(graph.roles.project)[function.name]
    if module.functions[function].owner_class is not None:
        return len(named) != len(called)
    return any(
        getattr(owner.parents[node], "func", None) is not node or owner.qualified(node) is not None
        for owner, node in named
        if node not in called
    )


@once
def _names(project: Program) -> dict[str, list[tuple[Module, ast.expr]]]:
    """Where each name is written, by itself or as an attribute."""
    found: dict[str, list[tuple[Module, ast.expr]]] = defaultdict(list)
    for module in project.modules:
        for node in module.walk(module.tree, ast.Name, ast.Attribute):
            found[node.id if isinstance(node, ast.Name) else node.attr].append((module, node))
    return found


def follows_prepare(timing: Timing, modules: Iterable[Module]) -> bool:
    """Whether anything is saved, or a state taken, where a function that prepares has come back."""
    return any(
        timing.follows(module, call) and not timing.after_prepare(module, call)
        for module in modules
        for call in module.calls
        if timing.following and called_name(call) in ("save", "state_dict")
    )


def _keeps_model(graph: CallGraph, save: Save, models: frozenset[Variable]) -> bool:
    """Whether a model, or the state of one, is in what is saved."""
    for module, part in contents(graph, save.module, save.value) if save.value is not None else ():
        match part:
            case ast.Call(func=ast.Attribute(value=owner, attr="state_dict")):
                part = owner
        if is_same(module, part, models):
            return True
    return False


def _before_guards(taken: StateTaken, guarded: list[Save | Written]) -> StateTaken:
    """A state that is taken in a statement which gets a guard is collected in front of it."""
    module = taken.module
    here = [one.statement for one in guarded if one.module is module]
    for statement in here if taken.ahead is None else ():
        if module.holds(statement, taken.call) and not is_changed(module, taken.call, taken.owner, statement):
            return replace(taken, ahead=statement)
    return taken


def handed_on(graph: CallGraph, timing: Timing, aliases: frozenset[Variable]) -> frozenset[Variable]:
    """The variables that get a prepared object as an argument, in whatever is called after prepare."""
    held = set(aliases)
    grown = True
    while grown:
        grown = False
        for function in timing.late:
            for caller, call in graph.sites.get(function, ()):
                module = graph.roles.project.module_of(function)
                for name, argument in arguments_of(call, Definition(module, function)):
                    parameter = Variable(module.functions[function], name)
                    if parameter not in held and caller.variable(argument) in held:
                        held.add(parameter)
                        grown = True
    return frozenset(held)
