"""Trainings that are better left alone: what they do would not be the same, or not be right, on several processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.loss_path import WEIGHTS
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.nodes import is_call_of, unparse
from accel_migrate.flow.program import parameters
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import follows

# What makes the same numbers on every process; drawn ones may differ.
_EQUAL = {f"torch.{name}" for name in ("zeros", "ones", "full", "tensor", "as_tensor", "zeros_like", "ones_like")}


_ITS_WEIGHTS = {"parameters", "named_parameters"}
_DEEPEST = 4  # functions that hand a model on to each other


def check_optimizers(
    graph: CallGraph, optimizers: list[Variable], for_accelerate: bool, averages_tensors: bool
) -> None:
    """Raise NotMigrated for an optimizer that cannot be prepared."""
    for optimizer in optimizers:
        for link in chain(graph, optimizer):
            _check_optimizer(graph.roles, link, averages_tensors)
            for module, name in bare_weights(graph.roles, link) if for_accelerate else ():
                raise NotMigrated(_of_no_model(name), (module, name))


def bare_weights(roles: Roles, optimizer: Variable) -> Iterator[tuple[Module, ast.Name]]:
    """Weights of no model that it is built over, as `scale = nn.Parameter(...)`, where each is named there.

    Ours averages all that a prepared optimizer steps; Accelerate averages for models alone.
    """
    for module, call in constructions(roles, optimizer, Role.OPTIMIZER):
        for name in module.walk(call, ast.Name):
            bindings = module.bindings_of(name)
            if any(isinstance(b.value, ast.Call) and _makes_weight(module, b.value) for b in bindings):
                yield module, name


def exchanged_later(roles: Roles, optimizer: Variable) -> Iterator[tuple[Module, ast.stmt, ast.expr]]:
    """Where a layer of its model is exchanged once it is built, and it is not built again: it keeps the old weights."""
    built = list(constructions(roles, optimizer, Role.OPTIMIZER))
    for module, call in built:
        asked = [part for part in module.walk(call, ast.Attribute) if part.attr in _ITS_WEIGHTS]
        models = {variable for part in asked if (variable := module.variable(part.value)) is not None}
        start, function = module.statement(call), module.scope(call).function
        flow = graph_of(module.tree, function or module.tree)
        again = [module.statement(other) for owner, other in built if owner is module and other is not call]
        for statement in module.walk(function or module.tree, ast.Assign, ast.Expr):
            if follows(module, start, statement):
                if flow.dominates(start, statement) or not flow.reachable(statement, start):
                    if not any(flow.holds(each) and flow.reachable(statement, each) for each in again):
                        yield from _exchanged(roles, module, statement, models)


def _exchanged(
    roles: Roles, module: Module, node: ast.AST, models: set[Variable], depth: int = 0
) -> Iterator[tuple[Module, ast.stmt, ast.expr]]:
    """`net.head = nn.Linear(16, 3)`, `setattr(net, "head", ...)`, or a function or method of the project that does so."""
    for part in module.walk(node, ast.Assign, ast.Call):
        if isinstance(part, ast.Assign):
            owner: ast.expr = part.targets[0]
            made = isinstance(part.value, ast.Call) and _makes_weight(module, part.value)
            while (made or roles.role(module, part.value) & Role.MODEL) and isinstance(
                owner, ast.Attribute | ast.Subscript
            ):
                owner = owner.value
                if module.variable(owner) in models:
                    yield module, part, part.targets[0]
            continue
        target = roles.function(module, part)
        if is_call_of(part, "setattr") and len(part.args) == 3:
            if module.variable(part.args[0]) in models and roles.role(module, part.args[2]) & Role.MODEL:
                yield module, module.statement(part), part.args[0]
        elif target is not None and depth < _DEEPEST:
            handed = {n for n, argument in arguments_of(part, target) if module.variable(argument) in models}
            if isinstance(part.func, ast.Attribute) and module.variable(part.func.value) in models:
                handed |= {parameter.arg for parameter in parameters(target.node)[:1]}  # its own method
            inner = {Variable(target.scope, name) for name in handed}
            if inner:
                yield from _exchanged(roles, target.module, target.node, inner, depth + 1)


def _makes_weight(module: Module, call: ast.Call) -> bool:
    return module.qualified(call.func) in WEIGHTS


def _of_no_model(name: ast.Name) -> str:
    return (
        f"the optimizer changes `{name.id}`, which belongs to no model, so nobody would average its gradients over "
        "processes; make it a parameter of the model"
    )


def _check_optimizer(roles: Roles, optimizer: Variable, averages_tensors: bool) -> None:
    """Only torch's own kind of optimizer can be prepared, over parameters of models or tensors that are averaged too."""
    for module, call in constructions(roles, optimizer, Role.OPTIMIZER):
        target = roles.made(module, call)
        if target is not None:
            bases = roles.project.base_names(target)
            if not any("ptim" in base for base in bases):
                raise NotMigrated(
                    f"{target.node.name} steps an optimizer from within and is not one itself, so it cannot be prepared; "
                    "step the inner optimizer in the loop",
                    call.lineno,
                )
        parameters = call.args[0] if call.args else None
        if isinstance(parameters, ast.List | ast.Tuple) and not (averages_tensors and steps_own_tensors(module, call)):
            for item in parameters.elts:
                if isinstance(item, ast.Name) and not _holds_parameters(module, item):
                    raise NotMigrated(_of_no_model(item), call.lineno)


def steps_own_tensors(module: Module, optimizer: ast.Call) -> bool:
    """`Adam([self.log_alpha])`: over tensors alone that the script makes, the same on every process, to be trained."""
    stepped = optimizer.args[0] if optimizer.args else None
    return isinstance(stepped, ast.List | ast.Tuple) and all(_is_own_tensor(module, item) for item in stepped.elts)


def _is_own_tensor(module: Module, item: ast.expr) -> bool:
    made = module.only_value(item)
    if not isinstance(made, ast.Call):
        return False
    name = module.full_name(made.func)
    trained = any(k.arg == "requires_grad" and unparse(k.value) == "True" for k in made.keywords)
    return trained and name in _EQUAL


def _holds_parameters(module: Module, name: ast.Name) -> bool:
    """Whether what a name holds was taken from a module: `weight = layer.weight`, `params = list(net.parameters())`."""
    bindings = module.bindings_of(name)
    texts = [unparse(b.value) for b in bindings if b.value is not None]
    return any(word in text for text in texts for word in ("param", ".weight", ".bias", "params"))
