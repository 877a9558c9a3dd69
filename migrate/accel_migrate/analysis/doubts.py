"""Trainings that are better left alone: what they do would not be the same, or not be right, on several processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.batches import reaching
from accel_migrate.analysis.homes import NoHome, chain
from accel_migrate.analysis.loops import Backward, CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable

# Methods of every module that make no part of a loss, or are the forward itself.
_HARMLESS = {
    "forward", "parameters", "named_parameters", "train", "eval", "zero_grad", "to", "cuda", "cpu", "state_dict",
    "modules", "children", "buffers", "named_modules", "register_forward_hook", "requires_grad_", "named_children",
}  # fmt: skip


def check_doubts(
    roles: Roles, graph: CallGraph, backwards: list[Backward], optimizers: list[Variable], models: list[Variable]
) -> None:
    """Raise NoHome for a training that must be left as it is."""
    for optimizer in optimizers:
        for link in chain(roles, graph, optimizer):
            _check_optimizer(roles, link)
    for backward in backwards:
        _check_loss(roles, graph, backward, models)


def _check_optimizer(roles: Roles, optimizer: Variable) -> None:
    """Only torch's own kind of optimizer, over parameters of models, can be prepared."""
    for module, call in _constructions(roles, optimizer):
        target = roles.target(module, call)
        if target is not None and isinstance(target.node, ast.ClassDef):
            bases = roles.project.base_names(target)
            if not any("ptim" in base for base in bases):
                raise NoHome(
                    f"{target.node.name} steps an optimizer from within and is none itself, so it cannot be prepared; "
                    "step the inner optimizer in the loop",
                    call.lineno,
                )
        parameters = call.args[0] if call.args else None
        if isinstance(parameters, ast.List | ast.Tuple):
            for item in parameters.elts:
                if isinstance(item, ast.Name) and not _holds_parameters(module, item):
                    raise NoHome(
                        f"the optimizer changes `{item.id}`, which belongs to no model, so nobody would average its "
                        "gradients over processes; make it a parameter of the model",
                        call.lineno,
                    )


def _constructions(roles: Roles, variable: Variable) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that build what a variable holds, looked up inside the project's own functions."""
    module = variable.scope.module
    for binding in module.bindings(variable):
        if isinstance(binding.value, ast.Call) and not binding.path:
            target = roles.target(module, binding.value)
            if target is None or isinstance(target.node, ast.ClassDef):
                yield module, binding.value
                continue
            for node in ast.walk(target.node):
                if isinstance(node, ast.Call) and roles.role(target.module, node) & Role.OPTIMIZER:
                    inner = roles.target(target.module, node)
                    if inner is None or isinstance(inner.node, ast.ClassDef):
                        yield target.module, node


def _holds_parameters(module: Module, name: ast.Name) -> bool:
    """Whether what a name holds was taken from a module: `weight = layer.weight`, `params = list(net.parameters())`."""
    variable = module.variable(name)
    bindings = module.bindings(variable) if variable is not None else []
    texts = [ast.unparse(b.value) for b in bindings if b.value is not None]
    return any(word in text for text in texts for word in ("param", ".weight", ".bias", "params"))


def _check_loss(roles: Roles, graph: CallGraph, backward: Backward, models: list[Variable]) -> None:
    """A loss that a method other than `forward` makes would pass by the averaging of gradients."""
    links = {link for model in models for link in chain(roles, graph, model)}
    bypass = _Bypass(roles, links).find(backward.module, backward.loss, 0)
    if bypass is not None:
        raise NoHome(
            f"{ast.unparse(bypass.func)}() makes the loss, past the model's forward, so its gradients would not be averaged "
            "over processes; call it from forward()",
            bypass.lineno,
        )


class _Bypass:
    """Looks for a method of a model, other than its forward, on the way from the loss back to the models."""

    def __init__(self, roles: Roles, models: set[Variable]) -> None:
        self.roles = roles
        self.models = models
        self.seen: set[ast.AST] = set()

    def find(self, module: Module, node: ast.AST, depth: int) -> ast.Call | None:
        if node in self.seen or depth > 30:
            return None
        self.seen.add(node)
        if isinstance(node, ast.Call):
            if module.variable(node.func) in self.models:
                return None  # the forward
            method = self._method(module, node)
            if method == "forward":
                return None
            if method is not None and not self._of_forward(module, node):
                return node
            children = [*node.args, *[k.value for k in node.keywords]]
            if isinstance(node.func, ast.Attribute):
                children.append(node.func.value)
        elif isinstance(node, ast.Name):
            return self._name(module, node, depth)
        else:
            children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for child in children:
            found = self.find(module, child, depth + 1)
            if found is not None:
                return found
        return None

    def _name(self, module: Module, node: ast.Name, depth: int) -> ast.Call | None:
        variable = module.variable(node)
        if variable is None or variable in self.models:
            return None
        for binding in reaching(module, node, variable):
            if (
                binding.value is not None
                and binding.kind == "assign"
                and not _without_gradients(module, binding.statement)
            ):
                found = self.find(module, binding.value, depth + 1)
                if found is not None:
                    return found
        return None

    def _method(self, module: Module, call: ast.Call) -> str | None:
        """The model's own method or part that a call runs: `model.sample(...)`, `model.encoder(...)`."""
        function = call.func
        if not isinstance(function, ast.Attribute):
            return None
        owner: ast.expr = function.value
        if module.variable(owner) in self.models:
            return function.attr if function.attr not in _HARMLESS or function.attr == "forward" else None
        return None

    def _of_forward(self, module: Module, call: ast.Call) -> bool:
        """`model.loss(output, target)`: its input comes out of the forward, through which gradients are averaged."""
        return any(
            self.roles.role(module, argument) & Role.OUTPUT
            for argument in (*call.args, *[k.value for k in call.keywords])
        )


def _without_gradients(module: Module, statement: ast.stmt) -> bool:
    return any(
        isinstance(parent, ast.With) and "no_grad" in ast.unparse(parent.items[0])
        for parent in module.ancestors(statement)
    )
