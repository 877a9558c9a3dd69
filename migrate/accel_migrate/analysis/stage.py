"""Where a training is set up: its home, what is prepared there, and the place for `prepare`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.cast import Cast
from accel_migrate.analysis.devices import DeviceDefinition, Move, check_later, device_definition
from accel_migrate.analysis.groups import Group
from accel_migrate.analysis.homes import Built, NoHome, Place, chain, choose_home, find_place, is_root
from accel_migrate.analysis.loops import CallGraph, LoaderLoop, is_read_in_training
from accel_migrate.analysis.pieces import Distribution
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Scope, Variable
from accel_migrate.analysis.steppers import wrapped_optimizer
from accel_migrate.analysis.updates import caller_not_given


@dataclass(frozen=True, eq=False)
class Stage:
    home: Scope
    prepared: tuple[Built, ...]
    uses: tuple[ast.stmt, ...]  # statements at home that start training or evaluation
    place: Place


def find_stage(roles: Roles, graph: CallGraph, group: Group, cast: Cast) -> Stage:
    """NoHome where the objects cannot be prepared in one place."""
    return _Staging(roles, graph, group).stage(cast)


class _Staging:
    def __init__(self, roles: Roles, graph: CallGraph, group: Group) -> None:
        self.roles = roles
        self.graph = graph
        self.group = group

    def stage(self, cast: Cast) -> Stage:
        home = choose_home(list(cast.chains))
        if home is None:
            line = self.group.backwards[0].call.lineno
            raise NoHome("model, optimizer and data are built in different places", line)
        prepared = self._prepared(home, cast)
        self._check_caller(home, prepared)
        uses = self._uses(home, cast.loops, cast.loaders)
        place = find_place(home, list(prepared), uses, self._made_of_optimizers(home))
        self._check_iterators(place, cast.loaders)
        return Stage(home, prepared, tuple(uses), place)

    def _prepared(self, home: Scope, cast: Cast) -> tuple[Built, ...]:
        order = (Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER)
        found: dict[Variable, Built] = {}
        for entry in cast.entries:
            for variable in chain(self.roles, self.graph, entry.variable):
                if variable.scope is home:
                    found[variable] = Built(Role.LOADER, variable, entry.key)
        for links in cast.chains:
            for variable in links:
                if variable.scope is home and variable not in found:
                    role = next(role for role in order if self.roles.of(variable) & role)
                    found[variable] = Built(role, variable)

        def position(built: Built) -> tuple[int, int]:
            lines = [b.statement.lineno for b in home.module.bindings(built.variable) if b.kind != "parameter"]
            return order.index(built.role), min(lines, default=0)

        return tuple(sorted(found.values(), key=position))

    def _check_caller(self, home: Scope, prepared: tuple[Built, ...]) -> None:
        """A function that is handed everything may be called once for each epoch: prepare belongs where it is built."""
        if home.is_function and not self.graph.sites.get(home.node) and not any(is_root(b.variable) for b in prepared):  # type: ignore[call-overload]
            raise NoHome(caller_not_given(home.node), home.node.lineno, home.module)  # type: ignore[arg-type, attr-defined]

    def _made_of_optimizers(self, home: Scope) -> set[Variable]:
        """Objects at home that step an optimizer from within: `prepare` comes before they are made."""
        module = home.module
        names = [Variable(home, name) for name in home.bindings] if not home.is_class else []
        attributes = [variable for variable in module.attribute_bindings if variable.scope is home]
        return {v for v in [*names, *attributes] if wrapped_optimizer(self.roles, module, v) is not None}

    def _uses(self, home: Scope, loops: tuple[LoaderLoop, ...], loaders: tuple[Variable, ...]) -> list[ast.stmt]:
        """Statements at home that start training or evaluation."""
        module = home.module
        functions = {b.function for b in self.group.backwards} | {loop.function for loop in loops}
        found: list[ast.stmt] = []
        for statement in (node for node in module.walk(home.node) if isinstance(node, ast.stmt)):
            if module.scope(statement) is not home or isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            if (
                any(loop.statement is statement for loop in loops)
                or any(b.module is module and module.statement(b.call) is statement for b in self.group.backwards)
                or self._starts_reading(module, statement, loaders)
            ):
                found.append(self._outermost_loop(module, statement))
            elif not isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
                if self.graph.reached_from(statement, self.roles, module) & (functions - {None, home.node}):
                    found.append(self._outermost_loop(module, statement))
        return sorted(dict.fromkeys(found), key=lambda s: s.lineno)

    def _starts_reading(self, module: Module, statement: ast.stmt, loaders: tuple[Variable, ...]) -> bool:
        """`iterator = iter(loader)`, read while training: from here on the loader must be the prepared one."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        variable = module.variable(statement.value.args[0]) if statement.value.args else None
        if variable is None or not self.roles.role(module, statement.value) & Role.ITERATOR:
            return False
        shared = any(variable in chain(self.roles, self.graph, loader) for loader in loaders)
        return shared and self._is_read(module, statement.targets[0])

    def _is_read(self, module: Module, iterator: ast.expr) -> bool:
        """Whether a training loop reads on from an iterator; one that is only looked into may stay as it is."""
        variable = module.variable(iterator)
        return variable is None or any(
            module.variable(node) == variable
            and is_read_in_training(self.roles, self.graph, self.group.backwards, module, node)
            for node in module.walk(module.tree)
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        )

    def _check_iterators(self, place: Place, loaders: tuple[Variable, ...]) -> None:
        """A trainer that starts to read where it is built would go on reading from the loader as it was."""
        module = place.module
        function = module.scope(place.after).function
        for statement in (node for node in module.walk(function or module.tree) if isinstance(node, ast.Assign)):
            if statement.lineno <= place.after.lineno and self._starts_reading(module, statement, loaders):
                raise NoHome(
                    f"`{ast.unparse(statement.targets[0])}` starts to read the loader before all is built that is "
                    "prepared with it; make it after the optimizer",
                    statement.lineno,
                    module,
                )

    def _outermost_loop(self, module: Module, statement: ast.stmt) -> ast.stmt:
        outermost = statement
        for parent in module.ancestors(statement):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                break
            if isinstance(parent, ast.For | ast.While) and not self._builds_inside(module, parent):
                outermost = parent
        return outermost

    def _builds_inside(self, module: Module, loop: ast.stmt) -> bool:
        """Whether an optimizer of this training is built in the body of a loop (a loop over folds, say)."""
        for variable, role in self.group.variables.items():
            if role & Role.OPTIMIZER:
                for link in chain(self.roles, self.graph, variable):
                    for binding in link.scope.module.bindings(link):
                        if any(parent is loop for parent in module.ancestors(binding.statement)):
                            return True
        return False


def find_device(
    roles: Roles, graph: CallGraph, home: Scope, moves: list[Move], distribution: Distribution
) -> DeviceDefinition | None:
    """The definition of the device that this training's moves name."""
    named: dict[Variable, None] = {}
    for move in moves:
        if move.device is not None:
            variable = move.module.variable(move.device)
            if variable is not None:
                named.update(dict.fromkeys(chain(roles, graph, variable)))
    order = {module: index for index, module in enumerate(roles.project.modules)}
    found = [d for variable in named if (d := device_definition(roles, variable)) is not None]
    found.sort(key=lambda d: (order[d.module], d.statement.lineno))
    as_text = {piece.statement for piece in distribution.pieces}
    kept_as_text = {d.variable for d in found if as_text.intersection((d.statement, *d.later)) and d.later}
    found = [d for d in found if d.variable not in kept_as_text]
    usable = [d for d in found if d.scope is home or _calls_home(roles, graph, home, d.scope) or d.scope.parent is None]
    if usable:
        check_later(usable[0])
    return usable[0] if usable else None


def _calls_home(roles: Roles, graph: CallGraph, home: Scope, scope: Scope) -> bool:
    """Whether the function of `scope` calls the home, directly or through others."""
    function = scope.function
    return function is not None and home.node in graph.reached_from(function, roles, scope.module)
