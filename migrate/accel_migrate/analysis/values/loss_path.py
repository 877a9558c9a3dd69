"""What a loss is computed through: from the backward pass back over names, calls and functions to the models that ran.

Only a model on this path is what trains. A criterion, or an object from which a backend made another, is not. `MadeOf` has the
calls that made what the loss is computed with, those of long before too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles, is_wrapper
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import all_arguments, called_name, children
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable
from accel_migrate.flow.torch_api import ITSELF

_NO_PART = Role.MODEL | Role.LOADER | Role.LOADERS | Role.ITERATOR | Role.OPTIMIZER | Role.SCHEDULER | Role.DEVICE
_DEPTH = 60


class LossPath:
    """`models` are the variables with the role of a model that the loss went through; `unknown` ran, and is not known."""

    def __init__(self, roles: Roles, graph: CallGraph, backwards: Iterable[Backward]) -> None:
        self.roles = roles
        self.graph = graph
        self.models: dict[Variable, ast.expr] = {}
        self.unknown: dict[Variable, ast.expr] = {}
        self._seen: set[ast.AST] = set()
        for backward in backwards:
            self._visit(backward.module, backward.loss, 0)
            if self.unknown or not self.models:
                for model in roles.computed_through(backward.module, backward.call.lineno):
                    self.unknown.clear()
                    self.models.setdefault(model, backward.loss)

    def goes_through(self, model: Variable) -> bool:
        """Whether the loss went through an object, under any name that it was handed over by."""
        links = set(chain(self.roles, self.graph, model))
        return any(not links.isdisjoint(chain(self.roles, self.graph, run)) for run in self.models)

    # ---- backwards

    def _visit(self, module: Module, node: ast.AST, depth: int) -> None:
        if node in self._seen or depth > _DEPTH:
            return
        self._seen.add(node)
        if isinstance(node, ast.Call):
            self._call(module, node, depth)
        elif isinstance(node, ast.Name | ast.Attribute):
            self._read(module, node, depth)
        called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        for child in children(node):
            if isinstance(child, ast.expr | ast.keyword | ast.comprehension) and child is not called:
                self._visit(module, child, depth + 1)

    def _call(self, module: Module, call: ast.Call, depth: int) -> None:
        target = self.roles.target(module, call)
        if target is not None and (isinstance(target.node, ast.ClassDef) or self_of(module, call.func) is not None):
            return  # `self(x)`: what runs is the model that the method is of
        if target is not None:
            for value in target.returned:
                self._visit(target.module, value, depth + 1)
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
                for made in values:
                    self._visit(own.scope.module, made.body, depth + 1)  # type: ignore[union-attr]
                return
            self.unknown.setdefault(own, call.func)
            self._methods_of(own, depth)

    def _methods_of(self, run: Variable, depth: int) -> None:
        """An object of the project's own that is called: what its `__call__` or `forward` returns."""
        known = self.roles.known.get(run)
        if known is None or known.owner is None or known.module is None:
            return
        owner = Definition(known.module, known.owner)
        for name in ("__call__", "forward"):
            method = self.roles.project.method(owner, name)
            for value in method.returned if method is not None else ():
                self._visit(method.module, value, depth + 1)  # type: ignore[union-attr]

    def _read(self, module: Module, node: ast.Name | ast.Attribute, depth: int) -> None:
        variable = module.variable(node)
        if variable is None:
            return
        role = self.roles.of(variable)
        if role & Role.MODEL and not self._is_only_kept(module, node):
            self.models.setdefault(variable, node)
        if role & _NO_PART:
            return
        owner = variable.scope.module
        if role == Role.BATCH:
            self._added(owner, variable, depth)
            return
        bindings = reaching(module, node) if isinstance(node, ast.Name) else owner.bindings(variable)
        for binding in bindings:
            self._binding(owner, variable, binding, depth)
        self._added(owner, variable, depth)

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

    def _binding(self, module: Module, variable: Variable, binding: Binding, depth: int) -> None:
        if binding.kind == "parameter":
            for caller, argument in self.graph.handed(variable):
                self._visit(caller, argument, depth + 1)
        elif binding.kind == "augment" and isinstance(binding.statement, ast.AugAssign):
            self._visit(module, binding.statement.value, depth + 1)
            for earlier in module.bindings(variable):
                if earlier.kind == "assign" and earlier.value is not None:
                    self._visit(module, earlier.value, depth + 1)
        elif binding.value is not None and binding.kind != "import":
            self._visit(module, binding.value, depth + 1)

    def _added(self, module: Module, variable: Variable, depth: int) -> None:
        """`losses.append(loss)`, `losses["image"] = loss`, `noise.mul_(code)`: what was put into a value comes out of it."""
        for name, call in module.method_calls.get(variable, ()):
            if name in ("append", "extend", "update", "insert") or (name.endswith("_") and not name.startswith("_")):
                for argument in call.args:
                    self._visit(module, argument, depth + 1)
        for value in module.items_set.get(variable, ()):
            self._visit(module, value, depth + 1)


def same_models(roles: Roles, graph: CallGraph, variable: Variable) -> set[Variable]:
    """A model's variable with those that it wraps or names again: `wrapped = DDP(model)`, `net = model.to(device)`."""
    found = list(chain(roles, graph, variable))
    for current in found:
        module = current.scope.module
        for binding in module.bindings(current):
            inner = _inner(module, binding.whole) if binding.whole is not None else None
            if inner is not None and inner not in found:
                found += [link for link in chain(roles, graph, inner) if link not in found]
    return set(found)


def _inner(module: Module, value: ast.expr) -> Variable | None:
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in ITSELF:
            value = value.func.value
        elif value.args and is_wrapper(module, value) and module.qualified(value.func) != "copy.deepcopy":
            value = value.args[0]
        else:
            return None
    if isinstance(value, ast.Attribute) and value.attr == "module":
        value = value.value
    return module.variable(value)


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
        target = self.roles.function(module, call)
        if target is not None:
            for decorator in target.node.decorator_list:
                wrapper = self.roles.project.definition(target.module, decorator)
                if wrapper is not None:
                    self.made += [(wrapper.module, inner) for inner in wrapper.module.walk(wrapper.node, ast.Call)]
            return
        variable = module.variable(call.func)
        if variable is not None and not self.roles.of(variable) & Role.MODEL:
            for binding in variable.scope.module.bindings(variable):
                # `nn.NLLLoss(weight)`, `partial(f, weight)`
                self._binding(variable.scope.module, variable, binding, depth)
        forward = self.roles.forward_of(module, call.func)
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
