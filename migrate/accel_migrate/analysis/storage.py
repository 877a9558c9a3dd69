"""What a training keeps on disk, seen as a whole: what is saved, written and read back once its objects are prepared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.files import Save, Written, saves_in, written_in
from accel_migrate.analysis.loading import Load, StateLoaded, loads_in, states_loaded_in
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.project import Definition
from accel_migrate.analysis.roles import Role, Roles, arguments_of
from accel_migrate.analysis.scopes import Module, Variable
from accel_migrate.analysis.timing import Timing


@dataclass(frozen=True, eq=False)
class StateTaken:
    """`model.state_dict()` of a prepared model."""

    module: Module
    call: ast.Call
    owner: ast.expr


@dataclass(frozen=True, eq=False)
class Storage:
    held: frozenset[Variable]  # every variable that holds a prepared object, those handed on after prepare included
    saves: tuple[Save, ...]
    taken: tuple[StateTaken, ...]
    written: tuple[Written, ...]
    loads: tuple[Load, ...]
    loaded: tuple[StateLoaded, ...]

    @property
    def needs(self) -> list[tuple[Module, ast.AST]]:
        """Where the Accelerator must be in reach: without it each process would write, or miss a wrapper's keys."""
        found: list[Save | StateTaken | StateLoaded] = [*self.saves, *self.taken, *self.loaded]
        return [(one.module, one.call) for one in found]

    @property
    def gone(self) -> set[ast.AST]:
        """Expressions that are no longer read once weights are loaded to the CPU."""
        locations = [load.location for load in self.loads if load.lands_on_cpu and load.location is not None]
        return {node for location in locations for node in ast.walk(location)}

    def waits(self, load: Load) -> bool:
        """Whether a file may be read that another process of this run is still writing."""
        return load.late and bool(self.saves)


def find_storage(roles: Roles, graph: CallGraph, timing: Timing, aliases: frozenset[Variable]) -> Storage:
    held = _handed_on(roles, graph, timing, aliases)
    everywhere = roles.project.modules
    return Storage(
        held,
        tuple(save for module in everywhere for save in saves_in(timing, module)),
        tuple(taken for module in everywhere for taken in _taken_in(roles, timing, module, held)),
        tuple(written for module in everywhere for written in written_in(module)),
        tuple(load for module in everywhere for load in loads_in(timing, module)),
        tuple(loaded for module in everywhere for loaded in states_loaded_in(roles, timing, module, held)),
    )


def _handed_on(roles: Roles, graph: CallGraph, timing: Timing, aliases: frozenset[Variable]) -> frozenset[Variable]:
    """The variables that get a prepared object as an argument, in whatever is called after prepare."""
    held = set(aliases)
    grown = True
    while grown:
        grown = False
        for function in timing.late:
            for caller, call in graph.sites.get(function, ()):
                module = next(m for m in roles.project.modules if function in m.functions)
                for name, argument in arguments_of(call, Definition(module, function)):
                    parameter = Variable(module.functions[function], name)
                    if parameter not in held and caller.variable(argument) in held:
                        held.add(parameter)
                        grown = True
    return frozenset(held)


def _taken_in(roles: Roles, timing: Timing, module: Module, held: frozenset[Variable]) -> Iterator[StateTaken]:
    for call in module.calls:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != "state_dict" or call.args:
            continue
        owner = function.value
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            owner = owner.value
        variable = module.variable(owner)
        if variable in held and roles.of(variable) & Role.MODEL and timing.after_prepare(module, call):
            yield StateTaken(module, call, owner)
