"""Losses that a model makes by another of its methods than `forward`, or by one of its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.loss_path import LossPath
from accel_migrate.analysis.values.made_of import built_by
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.analysis.values.sources import Place
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import itself

# Methods of every module that make no part of a loss, or are the forward itself.
_HARMLESS = {
    "forward", "parameters", "named_parameters", "train", "eval", "zero_grad", "to", "cuda", "cpu", "state_dict",
    "modules", "children", "buffers", "named_modules", "register_forward_hook", "requires_grad_", "named_children",
}  # fmt: skip
# What gradients do not come back through.
_STOPS = {"int", "float", "bool", "str", "len", "item", "detach", "tolist", "numpy", "argmax", "multinomial", "range"}


@dataclass(frozen=True, eq=False)
class ForwardMethod:
    """`model.name(...)` makes a loss at `call`; elsewhere the same method may be called without training."""

    model: Variable
    name: str
    module: Module
    call: ast.Call
    is_known: bool  # as a method of the project; it may be a part of the model else: `model.encoder(x)`


def find_forward_methods(
    graph: CallGraph, backwards: list[Backward], models: list[Variable], wraps: bool
) -> Iterator[ForwardMethod]:
    """Raises NotMigrated for what may be a part of the model, where a wrapper averages what comes through it alone."""
    owners = {link: model for model in models for link in chain(graph, model)}
    for backward in backwards:
        search = _Search(graph, backward, owners)
        for method in sorted(search.methods, key=lambda each: each.module.position(each.call)):
            if method.model in search.forwards:
                continue
            if wraps and not method.is_known:
                raise NotMigrated(
                    f"{unparse(method.call.func)}() makes the loss, past the model's forward, so its gradients would not be "
                    "averaged over processes; call it from forward()",
                    method.call.lineno,
                )
            yield method


def _is_method(graph: CallGraph, module: Module, function: ast.Attribute) -> bool:
    """Whether the class of a model is visible, or each that a table may give for it, and has the method."""
    model = graph.roles.value(module, function.value)
    if model.owner is not None and model.module is not None:
        return graph.roles.project.method(Definition(model.module, model.owner), function.attr) is not None
    variable = module.variable(function.value)
    made = [*built_by(graph, variable)] if variable is not None else []
    calls = [(owner, call) for owner, value in made if isinstance(call := itself(value), ast.Call)]
    classes = [_of_table(graph.roles, owner, call) for owner, call in calls]
    return any(classes) and all(
        each is not None and graph.roles.project.method(each, function.attr) is not None
        for found in classes
        for each in found
    )


def _of_table(roles: Roles, module: Module, call: ast.Call) -> list[Definition | None]:
    """The classes of `kinds` in `kinds[name](8)`, where that is a dictionary which is written out; None for what is not one."""
    written = [
        binding.value
        for binding in (module.bindings_of(call.func.value) if isinstance(call.func, ast.Subscript) else [])
    ]
    values = [value for each in written if isinstance(each, ast.Dict) for value in each.values]
    found = [roles.project.definition(module, value) for value in values]
    return [each if each is not None and isinstance(each.node, ast.ClassDef) else None for each in found]


class _Search(LossPath):
    """Goes from the loss back to the models, and notes how each is run: by its forward, or by another method."""

    def __init__(self, graph: CallGraph, backward: Backward, owners: dict[Variable, Variable]) -> None:
        self.owners = owners
        self.forwards: set[Variable] = set()
        self.methods: list[ForwardMethod] = []
        super().__init__(graph, [backward])

    def _steps(self, module: Module, node: ast.expr) -> Iterator[Place]:
        return super()._steps(module, node) if not _stops_gradients(module, node) else iter(())

    def _call(self, module: Module, call: ast.Call) -> Iterator[Place]:
        model = self._model(module, call.func)
        if model is not None:
            self.forwards.add(model)
        elif isinstance(call.func, ast.Attribute):
            model = self._model(module, call.func.value)
            if model is not None and call.func.attr == "forward":
                self.forwards.add(model)
            elif model is not None and call.func.attr not in _HARMLESS:
                known = _is_method(self.graph, module, call.func)
                self.methods.append(ForwardMethod(model, call.func.attr, module, call, known))
        return super()._call(module, call)

    def _model(self, module: Module, node: ast.expr) -> Variable | None:
        links = chain(self.graph, module.variable(node))
        return next((self.owners[link] for link in links if link in self.owners), None)


def _stops_gradients(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "data"
    around = [parent for parent in module.ancestors(node) if isinstance(parent, ast.With)]
    without = any("no_grad" in unparse(parent.items[0]) for parent in around)
    return without or (isinstance(node, ast.Call) and called_name(node) in _STOPS)
