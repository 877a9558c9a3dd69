"""Which moves go: those of batches that a prepared loader has moved, and of models that `prepare` places.

A model's move stays where something depends on it: the model runs before it is prepared, or comes back from the CPU
in the middle of training. There the move is harmless, and without it the script would break.
"""

from __future__ import annotations

import ast
import re

from accel_migrate.analysis.batches import Batches
from accel_migrate.analysis.devices import Move, moves_in
from accel_migrate.analysis.homes import Place, chain, is_root
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Function, Module, Variable

_RUNS_THE_MODEL = re.compile(r"summary|add_graph|flops|macs|profile|trace|export", re.I)


def sort_moves(
    roles: Roles,
    graph: CallGraph,
    modules: tuple[Module, ...],
    aliases: frozenset[Variable],
    shared: frozenset[Variable],
    place: Place,
) -> tuple[list[Move], list[Move]]:
    """The moves that prepared objects make needless, and the others."""
    sorter = _Sorter(roles, graph, modules, aliases, shared, place)
    dropped: list[Move] = []
    kept: list[Move] = []
    for module in modules:
        for move in moves_in(roles, module):
            (dropped if sorter.is_needless(move) else kept).append(move)
    return dropped, kept


class _Sorter:
    def __init__(
        self,
        roles: Roles,
        graph: CallGraph,
        modules: tuple[Module, ...],
        aliases: frozenset[Variable],
        shared: frozenset[Variable],
        place: Place,
    ) -> None:
        self.roles = roles
        self.graph = graph
        self.aliases = aliases
        self.place = place
        self.batches = Batches(roles, graph)
        self.shared = shared
        self.early = self._run_before_prepare()
        self.sent_to_cpu = any(self._goes_to_cpu(module, call) for module in modules for call in module.calls)

    def is_needless(self, move: Move) -> bool:
        module, receiver = move.module, move.receiver
        stored = _stored_in(module, move.call, receiver)
        if any(self.roles.of(variable) & Role.MODEL for variable in stored) or (
            self.roles.role(module, receiver) & Role.MODEL
        ):
            if not any(variable in self.aliases for variable in stored):
                return False
            if self._is_before_prepare(move):
                return not self._runs_early(move, stored)
            return not self.sent_to_cpu
        if (self._is_before_prepare(move) and self._is_at_home(move)) or module.scope(move.call).function in self.early:
            return False  # the loader is not prepared yet
        sources = self.batches.loaders(module, receiver)
        return sources is not None and all(self._is_shared(source) for source in sources)

    def _is_shared(self, loader: Variable) -> bool:
        """Whether every loader that a name may stand for is shared out."""
        links = chain(self.roles, self.graph, loader)
        built = [link for link in links if is_root(link)]
        return any(link in self.shared for link in links) and all(link in self.shared for link in built)

    def _run_before_prepare(self) -> set[Function]:
        """Functions that are called, also or only, while the loaders are still plain."""
        module, block = self.place.module, self.place.block
        last = next(index for index, statement in enumerate(block) if statement is self.place.after)
        found: set[Function] = set()
        for statement in block[: last + 1]:
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                found |= self.graph.reached_from(statement, self.roles, module)
        return found

    def _is_at_home(self, move: Move) -> bool:
        return move.module.scope(move.call).function is move.module.scope(self.place.after).function

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

    def _is_before_prepare(self, move: Move) -> bool:
        after = self.place.after
        return move.module is self.place.module and move.call.lineno <= (after.end_lineno or after.lineno)

    def _runs_early(self, move: Move, stored: list[Variable]) -> bool:
        """Whether the model is run between its move and `prepare`."""
        module = move.module
        last = self.place.after.end_lineno or self.place.after.lineno
        scope = module.scope(move.call)
        for call in module.calls:
            if not move.call.lineno < call.lineno <= last or module.scope(call) is not scope:
                continue
            if module.variable(call.func) in stored:
                return True
            if _RUNS_THE_MODEL.search(ast.unparse(call.func)):
                if any(module.variable(argument) in stored for argument in call.args):
                    return True
            if self._is_kept_elsewhere(module, call, stored):
                return True
        return False

    def _is_kept_elsewhere(self, module: Module, call: ast.Call, stored: list[Variable]) -> bool:
        """`average = copy.deepcopy(model)`: what is made of the model, and not prepared, stays where the model was."""
        statement = module.parents[call]
        if not isinstance(statement, ast.Assign) or not any(module.variable(a) in stored for a in call.args):
            return False
        made = [module.variable(target) for target in statement.targets]
        roles = Role.OPTIMIZER | Role.SCHEDULER
        return not any(v in self.aliases or v in stored or self.roles.of(v) & roles for v in made)


def _is_cpu(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value == "cpu") or "cpu" in ast.unparse(node).lower()


def _stored_in(module: Module, call: ast.expr, receiver: ast.expr) -> list[Variable]:
    """The variable that is moved, or that a freshly built model is stored in."""
    variable = module.variable(receiver)
    if variable is not None:
        return [variable]
    statement = module.statement(call)
    if isinstance(statement, ast.Assign):
        return [v for target in statement.targets if (v := module.variable(target)) is not None]
    return []
