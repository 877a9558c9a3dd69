"""Which code builds the models that are trained, and not another one beside them."""

from __future__ import annotations

import ast
from functools import cached_property

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.made_of import Part, built_by, parts_unread
from accel_migrate.analysis.values.roles import Role, is_wrapper
from accel_migrate.analysis.values.sources import MOST, code_behind
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.torch_api import ITSELF

_OF_LIBRARY = ("torch.nn.", "torchvision.models.")


class OfModels:
    """Asks of a layer whether it may be one of the prepared models', and run: what cannot be told may be."""

    def __init__(self, script: Script, training: Training) -> None:
        self.roles = script.roles
        self.graph = script.graph
        self.models = [built.variable for built in training.prepared if built.role == Role.MODEL]

    def may_hold(self, module: Module, node: ast.AST) -> bool:
        line = module.statement(node).lineno
        if any(part.module is module and part.line == line for part in self._unread):
            return False
        return not self.are_known or any(each in self.building for each in (node, *module.ancestors(node)))

    @cached_property
    def _unread(self) -> list[Part]:
        return [part for model in self.models for part in parts_unread(self.graph, model)]

    @cached_property
    def _values(self) -> list[tuple[Module, ast.expr]]:
        return [value for model in self.models for value in built_by(self.graph, model)]

    @cached_property
    def are_known(self) -> bool:
        """Whether it is visible what builds each model: code of the project, or a library that is known."""
        return bool(self._values) and all(self._is_known(*value) for value in self._values)

    def _is_known(self, module: Module, value: ast.expr) -> bool:
        if isinstance(value, ast.IfExp):
            return self._is_known(module, value.body) and self._is_known(module, value.orelse)
        if isinstance(value, ast.Name | ast.Attribute):
            return module.variable(value) is not None
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute) and value.func.attr in ITSELF:
            return self._is_known(module, value.func.value)
        if value.args and is_wrapper(module, value):
            return self._is_known(module, value.args[0])
        dotted = module.full_name(value.func)
        return self.roles.target(module, value) is not None or dotted.startswith(_OF_LIBRARY)

    @cached_property
    def building(self) -> dict[ast.AST, Module]:
        """The expressions, functions and classes that the models are built by, and what these name."""
        found = {node: module for module, node in code_behind(self.graph, self._values)}
        return found if len(found) < MOST else {module.tree: module for module in self.roles.project.modules}
