"""Which moves go: those of batches that a prepared loader has moved, and of models that `prepare` places.

A model's move stays where something depends on it: the model runs before it is prepared, comes back from the CPU in
the middle of training, or is another one, built once training is done. There the move is harmless, and without it the
script would break.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.batches import Batches
from accel_migrate.analysis.cast import Cast
from accel_migrate.analysis.devices import Move, moves_in
from accel_migrate.analysis.early_use import EarlyUses
from accel_migrate.analysis.homes import Place, chain, is_root
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable
from accel_migrate.analysis.timing import Timing
from accel_migrate.analysis.unmoved import Members
from accel_migrate.flow.nodes import unparse


def sort_moves(
    roles: Roles, graph: CallGraph, modules: tuple[Module, ...], cast: Cast, place: Place, timing: Timing
) -> tuple[frozenset[Variable], list[Move], list[Move]]:
    """Loaders whose batches stay where they are; the moves that prepared objects make needless, and the others."""
    sorter = _Sorter(roles, graph, modules, cast.aliases, cast.shared, place, timing)
    dropped: list[Move] = []
    kept: list[Move] = []
    for module in modules:
        for move in moves_in(roles, module):
            (dropped if sorter.is_needless(move) else kept).append(move)
    return _unplaced_loaders(roles, graph, cast, sorter, dropped, kept)


def _unplaced_loaders(
    roles: Roles, graph: CallGraph, cast: Cast, sorter: _Sorter, dropped: list[Move], kept: list[Move]
) -> tuple[frozenset[Variable], list[Move], list[Move]]:
    """Loaders whose batches stay where they are, and the moves once these keep theirs."""
    in_parallel = any(wrapping.is_data_parallel for wrapping in cast.distribution.wrappings)
    members = Members(roles, {move.call for move in (*dropped, *kept)}, in_parallel)
    found: set[Variable] = set()
    for loop in cast.loops if dropped or kept else ():
        variable = loop.module.variable(loop.loader)
        links = chain(roles, graph, variable) if variable is not None else []
        if not any(link in cast.shared for link in links):
            members.check_data_parallel(loop)
        elif members.unmoved(loop) is not None:
            members.check_data_parallel(loop)
            found.update(links)
    staying = [
        move
        for move in dropped
        if any(set(chain(roles, graph, v)) & found for v in sorter.batches.loaders(move.module, move.receiver) or ())
    ]
    return frozenset(found), [m for m in dropped if m not in staying], [*kept, *staying]


class _Sorter:
    def __init__(
        self,
        roles: Roles,
        graph: CallGraph,
        modules: tuple[Module, ...],
        aliases: frozenset[Variable],
        shared: frozenset[Variable],
        place: Place,
        timing: Timing,
    ) -> None:
        self.roles = roles
        self.graph = graph
        self.aliases = aliases
        self.batches = Batches(roles, graph)
        self.shared = shared
        self.late = timing.late
        self.uses = EarlyUses(roles, graph, aliases, place)
        self.early = self.uses.run_before()
        self.sent_to_cpu = any(self._goes_to_cpu(module, call) for module in modules for call in module.calls)

    def is_needless(self, move: Move) -> bool:
        module, receiver = move.module, move.receiver
        stored = _stored_in(module, move.call, receiver)
        if any(self.roles.of(variable) & Role.MODEL for variable in stored) or (
            self.roles.role(module, receiver) & Role.MODEL
        ):
            if not any(variable in self.aliases for variable in stored) or self._is_another(move, stored):
                return False
            if self.uses.comes_before(module, move.call):
                return not self.uses.need(module, move.call, stored)
            return not self.sent_to_cpu
        if self.uses.comes_before(module, move.call) or module.scope(move.call).function in self.early:
            return False  # the loader is not prepared yet
        sources = self.batches.loaders(module, receiver)
        return sources is not None and all(self._is_shared(source) for source in sources)

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
        return function in self.late

    def _is_shared(self, loader: Variable) -> bool:
        """Whether every loader that a name may stand for is shared out."""
        links = chain(self.roles, self.graph, loader)
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


def _is_cpu(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value == "cpu") or "cpu" in unparse(node).lower()


def _stored_in(module: Module, call: ast.expr, receiver: ast.expr) -> list[Variable]:
    """The variable that is moved, or that a freshly built model is stored in."""
    variable = module.variable(receiver)
    if variable is not None:
        return [variable]
    statement = module.statement(call)
    if isinstance(statement, ast.Assign):
        return [v for target in statement.targets if (v := module.variable(target)) is not None]
    return []
