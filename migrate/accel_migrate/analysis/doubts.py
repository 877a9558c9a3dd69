"""Trainings that are better left alone: what they do would not be the same, or not be right, on several processes."""

from __future__ import annotations

import ast

from accel_migrate.analysis.batches import reaching
from accel_migrate.analysis.constructions import constructions
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
    for module, call in constructions(roles, optimizer, Role.OPTIMIZER):
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


def _holds_parameters(module: Module, name: ast.Name) -> bool:
    """Whether what a name holds was taken from a module: `weight = layer.weight`, `params = list(net.parameters())`."""
    variable = module.variable(name)
    bindings = module.bindings(variable) if variable is not None else []
    texts = [ast.unparse(b.value) for b in bindings if b.value is not None]
    return any(word in text for text in texts for word in ("param", ".weight", ".bias", "params"))


def _check_loss(roles: Roles, graph: CallGraph, backward: Backward, models: list[Variable]) -> None:
    """A loss that a model makes by another method than `forward` alone would pass by the averaging of gradients."""
    owners = {link: model for model in models for link in chain(roles, graph, model)}
    search = _Search(owners)
    search.visit(backward.module, backward.loss, 0)
    for model, call in search.methods.items():
        if model not in search.forwards:
            raise NoHome(
                f"{ast.unparse(call.func)}() makes the loss, past the model's forward, so its gradients would not be "
                "averaged over processes; call it from forward()",
                call.lineno,
            )


class _Search:
    """Goes from the loss back to the models, and notes how each is run: by its forward, or by another method."""

    def __init__(self, owners: dict[Variable, Variable]) -> None:
        self.owners = owners
        self.forwards: set[Variable] = set()
        self.methods: dict[Variable, ast.Call] = {}
        self.seen: set[ast.AST] = set()

    def visit(self, module: Module, node: ast.AST, depth: int) -> None:
        if node in self.seen or depth > 30:
            return
        self.seen.add(node)
        if isinstance(node, ast.Call):
            self._call(module, node)
        elif isinstance(node, ast.Name):
            self._name(module, node, depth)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.keyword | ast.comprehension):
                self.visit(module, child, depth + 1)

    def _call(self, module: Module, call: ast.Call) -> None:
        model = self._model(module, call.func)
        if model is not None:
            self.forwards.add(model)
        elif isinstance(call.func, ast.Attribute):
            model = self._model(module, call.func.value)
            if model is not None and call.func.attr == "forward":
                self.forwards.add(model)
            elif model is not None and call.func.attr not in _HARMLESS:
                self.methods.setdefault(model, call)

    def _model(self, module: Module, node: ast.expr) -> Variable | None:
        variable = module.variable(node)
        return self.owners.get(variable) if variable is not None else None

    def _name(self, module: Module, node: ast.Name, depth: int) -> None:
        variable = module.variable(node)
        if variable is None or variable in self.owners:
            return
        for binding in reaching(module, node, variable):
            if binding.kind == "assign" and binding.value is not None:
                if not _without_gradients(module, binding.statement):
                    self.visit(module, binding.value, depth + 1)


def _without_gradients(module: Module, statement: ast.stmt) -> bool:
    return any(
        isinstance(parent, ast.With) and "no_grad" in ast.unparse(parent.items[0])
        for parent in module.ancestors(statement)
    )
