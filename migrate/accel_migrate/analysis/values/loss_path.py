"""What a loss is computed through: from the backward pass back over names, calls and functions to the models that ran.

Only a model on this path is what trains. A criterion, or an object from which a backend made another, is not. `MadeOf` has the
calls that made what the loss is computed with, those of long before too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, is_wrapper
from accel_migrate.analysis.values.sources import Place, held, put_into, returned
from accel_migrate.flow.closure import descent
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import all_arguments, called_name, operands
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import ITSELF

_NO_PART = Role.MODEL | Role.LOADER | Role.LOADERS | Role.ITERATOR | Role.OPTIMIZER | Role.SCHEDULER | Role.DEVICE


class LossPath:
    """`models` are the variables with the role of a model that the loss went through; `unknown` ran, and is not known."""

    def __init__(self, graph: CallGraph, backwards: Iterable[Backward]) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.models: dict[Variable, ast.expr] = {}
        self.unknown: dict[Variable, ast.expr] = {}
        for backward in backwards:
            self._follow([(backward.module, backward.loss)])
            if self.unknown or not self.models:
                for model in graph.roles.computed_through(backward.module, backward.call.lineno):
                    self.unknown.clear()
                    self.models.setdefault(model, backward.loss)

    def goes_through(self, model: Variable) -> bool:
        """Whether the loss went through an object, under any name that it was handed over by."""
        links = set(chain(self.graph, model))
        return any(not links.isdisjoint(chain(self.graph, run)) for run in self.models)

    # ---- backwards

    def _follow(self, values: Iterable[Place]) -> None:
        for _ in descent(values, lambda place: self._steps(*place)):
            pass  # the steps note what they come by

    def _steps(self, module: Module, node: ast.expr) -> Iterator[Place]:
        """What a value comes from, one step back."""
        if isinstance(node, ast.Call):
            yield from self._call(module, node)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from self._read(module, node)
        called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        yield from ((module, part) for part in operands(node) if part is not called)

    def _call(self, module: Module, call: ast.Call) -> Iterator[Place]:
        target = self.roles.target(module, call)
        if target is not None:
            if not self_of(module, call.func):  # `self(x)`: what runs is the model that the method is of
                yield from ((target.module, value) for value in target.returned)
            return
        run: ast.expr = call.func
        while isinstance(run, ast.Subscript | ast.Attribute) and module.variable(run) not in self.roles.known:
            run = run.value  # `models["first"](x)`, `model.encoder(x)`
        variable = module.variable(run)
        if variable is not None and self.roles.of(variable) & Role.MODEL:
            self.models.setdefault(variable, run)
            return
        own = module.variable(call.func)
        is_object = isinstance(call.func, ast.Name) or (
            own is not None and own.scope.is_class and own.name.count(".") == 1
        )
        if own is not None and is_object and not self.roles.of(own) and module.qualified(call.func) is None:
            if own in self.roles.observed and self.roles.observed[own].kind == "function":
                return
            values = [binding.value for binding in own.scope.module.bindings(own)]
            if values and all(isinstance(value, ast.Lambda) for value in values):
                yield from ((own.scope.module, made.body) for made in values if isinstance(made, ast.Lambda))
                return
            self.unknown.setdefault(own, call.func)
            for name in ("__call__", "forward"):  # of an object of the project's own
                method = self.roles.forward_of(module, call.func, name)
                yield from ((method.module, value) for value in method.returned) if method is not None else ()

    def _read(self, module: Module, node: ast.Name | ast.Attribute) -> Iterator[Place]:
        variable = module.variable(node)
        role = self.roles.of(variable)
        if variable is not None and role & Role.MODEL and not self._is_only_kept(module, node):
            self.models.setdefault(variable, node)
        if variable is not None and role == Role.BATCH:
            yield from put_into(variable)
        elif not role & _NO_PART:
            yield from held(self.graph, module, node)

    def _is_only_kept(self, module: Module, model: ast.expr) -> bool:
        """Whether a model is handed to what makes an object of it, `Task(model)`, or with no data: it does not run there."""
        call = module.parents[model]
        if isinstance(call, ast.keyword):
            call = module.parents[call]
        if not isinstance(call, ast.Call) or call.func is model:
            return False
        name = called_name(call)
        handed = all_arguments(call)
        return name[:1].isupper() or all(
            isinstance(argument, ast.Constant) or self.roles.role(module, argument) & _NO_PART for argument in handed
        )


def same_models(graph: CallGraph, variable: Variable) -> set[Variable]:
    """A model's variable with those that it wraps or names again: `wrapped = DDP(model)`, `net = model.to(device)`."""
    found = list(chain(graph, variable))
    for current in found:
        module = current.scope.module
        for binding in module.bindings(current):
            inner = _inner(module, binding.whole) if binding.whole is not None else None
            if inner is not None and inner not in found:
                found += [link for link in chain(graph, inner) if link not in found]
    return set(found)


def _inner(module: Module, value: ast.expr) -> Variable | None:
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in ITSELF:
            value = value.func.value
        elif value.args and is_wrapper(module, value) and module.qualified(value.func) != "copy.deepcopy":
            value = value.args[0]
        else:
            return None
    return module.variable(value)


WEIGHTS = ("torch.nn.Parameter",)


class MadeOf(LossPath):
    """Through the forward of modules and criteria; weights and layers are where their model is."""

    def __init__(self, graph: CallGraph, backwards: Iterable[Backward]) -> None:
        self.made: list[tuple[Module, ast.Call]] = []
        super().__init__(graph, backwards)

    def _steps(self, module: Module, node: ast.expr) -> Iterator[Place]:
        return super()._steps(module, node) if not _is_of_model(module, node) else iter(())

    def _call(self, module: Module, call: ast.Call) -> Iterator[Place]:
        self.made.append((module, call))
        yield from super()._call(module, call)
        if self.roles.function(module, call) is not None:
            return
        if not self.roles.role(module, call.func) & Role.MODEL:
            yield from held(self.graph, module, call.func)  # `nn.NLLLoss(weight)`, `partial(f, weight)`
        yield from returned(self.graph, module, call)


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
