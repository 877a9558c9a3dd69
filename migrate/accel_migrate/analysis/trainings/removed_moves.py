"""Which moves go: those of batches that a prepared loader has moved, and of models that `prepare` places.

A model's move stays where something depends on it: the model runs before it is prepared, comes back from the CPU in
the middle of training, or is another one, built once training is done. There the move is harmless, and without it the
script would break.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import NamedTuple

from accel_migrate.analysis.moves.batches import Batches
from accel_migrate.analysis.moves.devices import Move, moves_in
from accel_migrate.analysis.moves.tensorless import holds_no_tensors
from accel_migrate.analysis.moves.unmoved import Members
from accel_migrate.analysis.placement.early_use import EarlyUses
from accel_migrate.analysis.processes.timing import Timing, set_anew
from accel_migrate.analysis.trainings.participants import Participants
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import Place, chain, is_root
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import calls_method, unparse
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import follows

_MANY = 3
_TAKES_ARRAYS = ("numpy.array", "numpy.asarray")


@dataclass(frozen=True, eq=False)
class HostRead:
    """`batch.numpy()`: `value` must be on the CPU for `call`."""

    module: Module
    call: ast.Call
    value: ast.expr


class Sorted(NamedTuple):
    """What prepared loaders and models do by themselves, and what the script goes on doing."""

    unplaced: frozenset[Variable]  # loaders whose batches stay where they are
    dropped: list[Move]  # that prepared objects make needless
    kept: list[Move]
    fetched: list[HostRead]  # of batches that come from the device now


def sort_moves(
    graph: CallGraph, modules: tuple[Module, ...], participants: Participants, place: Place, timing: Timing
) -> Sorted:
    sorter = _Sorter(graph, modules, participants, place, timing)
    dropped: list[Move] = []
    kept: list[Move] = []
    for module in modules:
        for move in moves_in(graph.roles, module):
            (dropped if sorter.is_needless(move) else kept).append(move)
    branches = _in_branches(graph.roles, dropped)
    dropped, kept = [move for move in dropped if move not in branches], [*kept, *branches]
    reads = [read for module in modules for call in module.calls if (read := _read_on_cpu(module, call)) is not None]
    fetched = [r for r in reads if timing.after_prepare(r.module, r.call) and sorter.is_batch(r.module, r.value)]
    return _unplaced_loaders(graph, participants, sorter, Sorted(frozenset(), dropped, kept, fetched))


def _in_branches(roles: Roles, moves: list[Move]) -> list[Move]:
    """Moves of a model that is built in many branches: they do no harm, and each would be a line to read."""
    by_model: dict[Variable, list[Move]] = {}
    for move in moves:
        named = isinstance(move.device, ast.Name) and isinstance(move.call.func, ast.Attribute)
        if named and move.call.func.attr == "to":  # type: ignore[attr-defined]
            for variable in _stored_in(move.module, move.call, move.receiver):
                if roles.of(variable) & Role.MODEL:
                    by_model.setdefault(variable, []).append(move)
    return [move for found in by_model.values() if len(found) >= _MANY for move in found]


def _unplaced_loaders(graph: CallGraph, participants: Participants, sorter: _Sorter, first: Sorted) -> Sorted:
    """The loaders whose batches stay where they are keep their moves."""
    in_parallel = any(wrapping.moves_inputs for wrapping in participants.distribution.wrappings)
    _, dropped, kept, fetched = first
    members = Members(graph.roles, {m.call for m in (*dropped, *kept)}, {read.call for read in fetched}, in_parallel)
    found: set[Variable] = set()
    for loop in participants.loops if dropped or kept else ():
        links = chain(graph, loop.module.variable(loop.loader))
        if not any(link in participants.shared for link in links):
            members.check_data_parallel(loop)
        elif members.unmoved(loop) is not None:
            members.check_data_parallel(loop)
            found.update(links)

    def stays(module: Module, value: ast.expr) -> bool:
        return any(set(chain(graph, v)) & found for v in sorter.batches.loaders(module, value) or ())

    staying = [move for move in dropped if stays(move.module, move.receiver)]
    return Sorted(
        frozenset(found),
        [move for move in dropped if move not in staying],
        [*kept, *staying],
        [read for read in fetched if not stays(read.module, read.value)],
    )


def _read_on_cpu(module: Module, call: ast.Call) -> HostRead | None:
    """`x` of `x.numpy()` and `np.array(x)`."""
    if calls_method(call, "numpy") and not call.args:
        return None if _is_on_cpu(call.func.value) else HostRead(module, call, call.func.value)
    if module.qualified(call.func) in _TAKES_ARRAYS and len(call.args) == 1:
        argument = call.args[0]
        plain = isinstance(argument, ast.Name | ast.Subscript | ast.Attribute)
        return HostRead(module, call, argument) if plain else None
    return None


class _Sorter:
    def __init__(
        self, graph: CallGraph, modules: tuple[Module, ...], participants: Participants, place: Place, timing: Timing
    ) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.aliases = aliases = participants.aliases
        # A loader may have taken the prepared one's name later.
        self.batches = Batches(graph.roles, graph, lambda module, loader: any(set_anew(graph, timing, module, loader)))
        self.shared = participants.shared
        self.timing = timing
        self.uses = EarlyUses(graph, aliases, place)
        self.later = [
            ({built.variable for built in objects}, EarlyUses(graph, aliases, replace(place, after=after)))
            for after, objects in place.again()
        ]
        self.early = self.uses.run_before()
        self.sent_to_cpu = any(self._goes_to_cpu(module, call) for module in modules for call in module.calls)

    def is_needless(self, move: Move) -> bool:
        module, receiver = move.module, move.receiver
        if not move.kept and holds_no_tensors(self.roles, module, receiver):
            return True
        stored = _stored_in(module, move.call, receiver)
        if any(self.roles.of(variable) & Role.MODEL for variable in stored) or (
            self.roles.role(module, receiver) & Role.MODEL
        ):
            if self.timing.may_run_bare(module, move.call):
                return False
            uses = self._uses_before_prepare(move, stored)
            if not any(variable in self.aliases for variable in stored) or self._is_built_apart(stored):
                return False
            if uses is self.uses and self._is_another(move, stored):
                return False
            if uses.comes_before(module, move.call) or module.parents[move.call] is uses.place.after:
                return not uses.need(module, move.call, stored) and not self._may_end_first(module, move.call, stored)
            # A function that no run calls after `prepare` has a model of its own.
            return not self.sent_to_cpu and self.timing.meets(module, move.call)
        if self.uses.comes_before(module, move.call) or module.scope(move.call).function in self.early:
            return False  # the loader is not prepared yet
        return self.is_batch(module, receiver) and self.timing.after_prepare(module, move.call)

    def _uses_before_prepare(self, move: Move, stored: list[Variable]) -> EarlyUses:
        """Those before the call of `prepare` that what is moved comes to: a later one, if it was built for that."""
        module, place = move.module, self.uses.place
        beside = module is place.module and module.scope(move.call).function is self.uses.function
        if beside and not self.uses.comes_before(module, move.call):
            for prepared, uses in self.later:
                if not prepared.isdisjoint(stored) and uses.comes_before(module, move.call):
                    return uses
        return self.uses

    def _may_end_first(self, module: Module, move: ast.Call, stored: list[Variable]) -> bool:
        """Whether a constructor may return between a move of what it keeps and prepare: `if predict_only: return`."""
        function, place = module.scope(move).function, self.uses.place
        if place.module is not module or function is None or function is not module.scope(place.after).function:
            return False
        kept = any("." in variable.name for variable in stored)
        return kept and any(
            follows(module, move, node) and not place.comes_before(node) for node in module.walk(function, ast.Return)
        )

    def is_batch(self, module: Module, value: ast.expr) -> bool:
        """Whether a value comes from prepared loaders and nowhere else."""
        sources = self.batches.loaders(module, value)
        return sources is not None and all(self._is_shared(source) for source in sources)

    def _is_built_apart(self, stored: list[Variable]) -> bool:
        """Whether another script hands over a model of its own, which nothing prepares there."""
        links = [link for v in stored if v in self.aliases for link in chain(self.graph, v)]
        return any(is_root(self.roles, link) and link not in self.aliases for link in links)

    def _is_another(self, move: Move, stored: list[Variable]) -> bool:
        """Whether what is moved may be a model that was built where nothing prepares it any more."""
        module = move.module
        return any(
            isinstance(binding.value, ast.Call)
            and not any(isinstance(n, ast.expr) and module.variable(n) == variable for n in module.walk(binding.value))
            and self.uses.leads_to(module, binding.statement, module.statement(move.call))
            and self._runs_late(module, binding.statement)
            for variable in stored
            for binding in module.bindings(variable)
        )

    def _runs_late(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement runs, also or only, after the objects are prepared, and not to prepare them again."""
        function = module.scope(statement).function
        if module is self.uses.place.module and function is self.uses.function:
            return not self.uses.comes_before(module, statement)
        return function in self.timing.late

    def _is_shared(self, loader: Variable) -> bool:
        """Whether every loader that a name may stand for is sharded."""
        links = chain(self.graph, loader)
        built = [link for link in links if is_root(self.roles, link)]
        return any(link in self.shared for link in links) and all(link in self.shared for link in built)

    def _goes_to_cpu(self, module: Module, call: ast.Call) -> bool:
        """`model.cpu()`, `model.eval().cpu()` or `model.to("cpu")` of a prepared model."""
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in ("cpu", "to"):
            return False
        if function.attr == "to" and not (call.args and _is_cpu(call.args[0])):
            return False
        receiver = function.value
        while isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
            receiver = receiver.func.value
        return module.variable(receiver) in self.aliases and bool(self.roles.role(module, receiver) & Role.MODEL)


def _is_on_cpu(node: ast.expr) -> bool:
    """`batch.to("cpu")`, which the script has fetched itself."""
    return calls_method(node, "to") and bool(node.args) and _is_cpu(node.args[0])


def _is_cpu(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value == "cpu") or "cpu" in unparse(node).lower()


def _stored_in(module: Module, call: ast.expr, receiver: ast.expr) -> list[Variable]:
    """The variables that hold a model from then on: the one that is moved, and those that it is stored in."""
    variable = module.variable(receiver)
    found = [variable] if variable is not None else []
    statement = module.statement(call)
    if isinstance(statement, ast.Assign) and (variable is None or statement.value is call):
        found += [v for target in statement.targets if (v := module.variable(target)) is not None]
    return found
