"""What a training keeps on disk, seen as a whole: what is saved, written and read back once its objects are prepared."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.storage.files import Save, Written, saves_in, written_in
from accel_migrate.analysis.storage.lifting import Lifted
from accel_migrate.analysis.storage.loading import Load, StateLoaded, loads_in, states_loaded_in
from accel_migrate.analysis.storage.states import StateTaken, is_changed, same_models, states_taken
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable


@dataclass(frozen=True, eq=False)
class Storage:
    held: frozenset[Variable]  # every variable that holds a prepared object, those handed on after prepare included
    models: frozenset[Variable]  # every variable that holds a prepared model, or a part of one, under any name
    saves: tuple[Save, ...]
    taken: tuple[StateTaken, ...]
    written: tuple[Written, ...]
    loads: tuple[Load, ...]
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
        return load.late and bool(self.saves)


def find_storage(
    roles: Roles, graph: CallGraph, flow: RankFlow, timing: Timing, held: frozenset[Variable], wraps: bool
) -> Storage:
    """`held` are the variables that hold a prepared object; `wraps`: models are in a wrapper on several processes."""
    everywhere = roles.project.modules
    saves = tuple(save for module in everywhere for save in saves_in(graph, timing, module))
    models = same_models(roles, graph, held)
    optimizers = frozenset(variable for variable in held if roles.of(variable) & Role.OPTIMIZER)
    written = tuple(written for module in everywhere for written in written_in(graph, module))
    plain = {save.statement for save in saves if save.plain}  # which the Accelerator writes
    guarded: list[Save | Written] = [save for save in saves if not save.plain]
    guarded += [one for one in written if not one.kept and one.statement not in plain]
    taken = [
        _before_guards(one, guarded)
        for module in everywhere
        for one in states_taken(graph, flow, timing, module, models, optimizers)
    ]
    return Storage(
        held,
        models,
        saves,
        tuple(one for one in taken if one.of_model or one.ahead is not None or one.lifted),
        written,
        tuple(load for module in everywhere for load in loads_in(roles, timing, module)),
        tuple(one for module in everywhere if wraps for one in states_loaded_in(roles, timing, module, held)),
    )


def _before_guards(taken: StateTaken, guarded: list[Save | Written]) -> StateTaken:
    """A state that is taken in a statement which gets a guard is collected in front of it."""
    module = taken.module
    here = [one.statement for one in guarded if one.module is module]
    for statement in here if taken.ahead is None else ():
        if module.holds(statement, taken.call) and not is_changed(module, taken.call, taken.owner, statement):
            return replace(taken, ahead=statement)
    return taken


def handed_on(roles: Roles, graph: CallGraph, timing: Timing, aliases: frozenset[Variable]) -> frozenset[Variable]:
    """The variables that get a prepared object as an argument, in whatever is called after prepare."""
    held = set(aliases)
    grown = True
    while grown:
        grown = False
        for function in timing.late:
            for caller, call in graph.sites.get(function, ()):
                module = roles.project.module_of(function)
                for name, argument in arguments_of(call, Definition(module, function)):
                    parameter = Variable(module.functions[function], name)
                    if parameter not in held and caller.variable(argument) in held:
                        held.add(parameter)
                        grown = True
    return frozenset(held)
