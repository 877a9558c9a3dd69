"""The calls that make what a loss is computed with: those of the step, and those that made what it reads, long before."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.loss_path import LossPath
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Binding, Module, Variable

WEIGHTS = ("torch.nn.Parameter",)


class MadeOf(LossPath):
    """Through the forward of modules, criteria, decorators and defaults; weights and layers are where their model is."""

    def __init__(self, roles: Roles, graph: CallGraph, backwards: Iterable[Backward]) -> None:
        self.made: list[tuple[Module, ast.Call]] = []
        super().__init__(roles, graph, backwards)

    def _visit(self, module: Module, node: ast.AST, depth: int) -> None:
        if not _is_of_model(module, node):
            super()._visit(module, node, depth)

    def _call(self, module: Module, call: ast.Call, depth: int) -> None:
        self.made.append((module, call))
        super()._call(module, call, depth)
        target = self.roles.target(module, call)
        if target is not None and not isinstance(target.node, ast.ClassDef):
            for decorator in target.node.decorator_list:
                wrapper = self.roles.project.definition(target.module, decorator)
                if wrapper is not None:
                    self.made += [(wrapper.module, inner) for inner in wrapper.module.walk(wrapper.node, ast.Call)]
            return
        variable = module.variable(call.func)
        if variable is not None and not self.roles.of(variable) & Role.MODEL:
            for binding in variable.scope.module.bindings(variable):
                self._binding(
                    variable.scope.module, variable, binding, depth
                )  # `nn.NLLLoss(weight)`, `partial(f, weight)`
        value = self.roles.value(module, call.func)
        if value.owner is not None and value.module is not None:
            forward = self.roles.project.method(Definition(value.module, value.owner), "forward")
            for each in forward.returned if forward is not None else ():
                self._visit(forward.module, each, depth + 1)  # type: ignore[union-attr]

    def _read(self, module: Module, node: ast.Name | ast.Attribute, depth: int) -> None:
        super()._read(module, node, depth)
        variable = module.variable(node)
        if variable is not None and variable.scope.is_class and not variable.scope.module.bindings(variable):
            for binding in variable.scope.bindings.get(variable.name.removeprefix("self."), ()):
                self._binding(variable.scope.module, variable, binding, depth)  # of the class, for all objects

    def _binding(self, module: Module, variable: Variable, binding: Binding, depth: int) -> None:
        super()._binding(module, variable, binding, depth)
        function = variable.scope.node
        if binding.kind == "parameter" and isinstance(function, ast.FunctionDef):
            default = default_of(function, variable.name)
            if default is not None:
                self._visit(module, default, depth + 1)


def _is_of_model(module: Module, node: ast.AST) -> bool:
    """A weight or a layer that a module keeps: prepare() takes them along."""
    if not isinstance(node, ast.Call):
        return False
    dotted = module.full_name(node.func)
    statement = module.statement(node)
    kept = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute)
    owner = module.scope(node).owner_class
    in_module = owner is not None and any(getattr(each, "name", "") == "forward" for each in owner.node.body)  # type: ignore[attr-defined]
    if dotted in WEIGHTS:
        return kept or in_module
    return dotted.startswith("torch.nn.") and kept and in_module
