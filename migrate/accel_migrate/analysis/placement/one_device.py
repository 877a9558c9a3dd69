"""One device for all: whatever names a device beside the Accelerator names that of its process, or the loop is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.moves.cuda_bound import is_left_behind
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move, moves_in
from accel_migrate.analysis.placement.outside_device import OutsideDevice, is_number, is_told
from accel_migrate.analysis.placement.reach import Reach
from accel_migrate.analysis.values.imported import brought_by
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.origins import Where, of_variable, where
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.idle import Unit, unit_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import calls_method, walk
from accel_migrate.flow.scopes import Function, Module, Variable

_RIGHT = Where.CPU | Where.IN_PLACE | Where.GPU
_ADVICE = "hand over the device that the model is moved to, or take that of a tensor which it meets, as `x.device`"


@dataclass(frozen=True, eq=False)
class Tied:
    """What of the script's own devices is set from the Accelerator."""

    roles: Roles
    graph: CallGraph
    device: DeviceDefinition | None
    given: OutsideDevice | None
    reach: Reach
    distribution: Distribution
    idle: frozenset[Unit]  # what does not run in this training

    def check(self, modules: tuple[Module, ...], gone: frozenset[ast.AST], moves: list[Move]) -> None:
        """NotMigrated for a device that stays, in these files and what they import, and may be another than the Accelerator's.

        So may be what nobody knows, of moves that go.
        """
        dropped = {move.device for move in moves if not is_number(move)}
        for module in files_of(self.roles, modules):
            for node in _devices(self.roles, module):
                if not self._may_run(modules, module, node):
                    continue
                if unit_of(node, module.ancestors(node)) in self.idle:
                    continue
                if where(self.roles, module, node) & ~_RIGHT == Where.NOTHING:
                    continue
                if node in gone and not (node in dropped and self._is_unknown(module, node)):
                    continue
                if not self._holds(module, node) and not self._is_never_called(module, node):
                    numbered = not where(self.roles, module, node) & Where.UNKNOWN
                    advice = 'name it without its number, as "cuda"' if numbered else _ADVICE
                    name = module.source.code(node)
                    raise NotMigrated(
                        f"`{name}` may name another device than the Accelerator's; {advice}", (module, node)
                    )

    def _is_unknown(self, module: Module, node: ast.expr) -> bool:
        """Whether nothing says which device it is: what it is bound to, where that comes from, or the script's own choice."""
        if isinstance(node, ast.Call):
            return False  # what it gives, and does besides, is asked of the call that goes
        variable = module.variable(node)
        if self.device is not None and variable in chain(self.graph, self.device.variable):
            return False  # `self.device = device`, of which the Accelerator is told
        links = chain(self.graph, variable)
        found = [where(self.roles, module, node), *[of_variable(self.roles, link) for link in links]]
        return all(meant & Where.UNKNOWN for meant in found)

    def stays_on_cuda(
        self, modules: tuple[Module, ...], gone: frozenset[ast.AST], prepared: frozenset[Variable]
    ) -> bool:
        """Whether something of the script stays on CUDA or the CPU: by a device of its own, or moved only if there is CUDA."""

        def runs(module: Module, node: ast.expr) -> bool:
            idle = unit_of(node, module.ancestors(node)) in self.idle
            return node not in gone and not idle and self._may_run(modules, module, node)

        return any(
            runs(module, node)
            and where(self.roles, module, node) == Where.CPU | Where.GPU
            and not self._holds(module, node)
            for module in files_of(self.roles, modules)
            for node in _devices(self.roles, module)
        ) or any(
            runs(module, move.call) and is_left_behind(self.graph, move, prepared)
            for module in files_of(self.roles, modules)
            for move in moves_in(self.roles, module)
        )

    def _may_run(self, modules: tuple[Module, ...], module: Module, node: ast.expr) -> bool:
        """Whether a node may run in this training: what stands under `if __name__ == "__main__":` runs in its own script."""
        made = self.reach.creation
        if not under_main(module, node) or module is made.module:
            return True
        if module not in modules or made.parent is None:
            return False
        return made.is_class or made.node in self.graph.reached_from(module.tree, module)

    def _holds(self, module: Module, node: ast.expr) -> bool:
        """Whether an expression is set from the Accelerator, or asks for the number of the process."""
        if self.device is not None and any(part is node for part in walk(self.device.statement)):
            return True
        mentioned = [v for n in walk(node) if isinstance(n, ast.Name | ast.Attribute) and (v := module.variable(n))]
        return any(self._is_set(variable) for variable in mentioned)

    def _is_set(self, variable: Variable) -> bool:
        if is_told(self.distribution, variable):
            return True
        links = self._held_by(variable)
        if self.device is not None and self.device.variable in links:
            return True
        if self.given is not None and self.given.variable in links:
            return True
        rewritten = self.distribution.rewritten()
        if any(binding.statement in rewritten for link in links for binding in link.scope.module.bindings(link)):
            return True
        for link in links:
            parameter = self.reach.parameters.get(link.scope.node)  # type: ignore[call-overload]
            if parameter is not None and parameter.device == link.name:
                return True
        return False

    def _held_by(self, variable: Variable) -> list[Variable]:
        """The variables that hold the same device, also behind `params.device = device`."""
        links = list(chain(self.graph, variable))
        for link in links:
            if "." in link.name and not link.scope.is_class:
                module = link.scope.module
                named = [module.variable(b.value) for b in module.bindings(link) if isinstance(b.value, ast.Name)]
                links += [v for each in named if each for v in chain(self.graph, each) if v not in links]
        return links

    def _is_never_called(self, module: Module, node: ast.expr) -> bool:
        """Whether it is handed in by a caller that is not among the files."""
        variables = [v for n in walk(node) if isinstance(n, ast.Name | ast.Attribute) and (v := module.variable(n))]
        for variable in variables:
            for link in chain(self.graph, variable):
                function = link.scope.node
                bindings = link.scope.module.bindings(Variable(link.scope, link.name.partition(".")[0]))
                if any(b.kind == "parameter" for b in bindings) and not self.graph.all_sites.get(function):  # type: ignore[call-overload]
                    return True
        return False


def _devices(roles: Roles, module: Module) -> Iterator[ast.expr]:
    """Every expression that says on which device something is made, or to which it is moved.

    What a function of the project is handed is asked there.
    """
    for move in moves_in(roles, module):
        if move.device is not None:
            yield move.device
    for call in module.calls:
        for keyword in call.keywords:
            moves = calls_method(call, "to")
            if keyword.arg == "device" and not moves and not _takes_device(roles, module, call):
                yield keyword.value


def _takes_device(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call leads to a function of the project, or a constructor, that has a parameter `device`."""
    target = roles.target(module, call)
    node = target.node if target is not None else None
    inside = [each for each in node.body if isinstance(each, Function)] if isinstance(node, ast.ClassDef) else []
    makers = [node] if isinstance(node, Function) else [each for each in inside if each.name == "__init__"]
    return any("device" in [a.arg for a in (*each.args.args, *each.args.kwonlyargs)] for each in makers)


def files_of(roles: Roles, modules: tuple[Module, ...]) -> list[Module]:
    """The files of a training, and all that they import."""
    return [*modules, *brought_by(roles.project, modules)]
