"""How weights are changed after a backward pass: by an optimizer, or by hand, and what to say when neither is visible."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import all_arguments, calls_method, unparse, walk
from accel_migrate.flow.scopes import Function, Module, Variable


def updated_by_hand(roles: Roles, backward: Backward) -> list[Variable]:
    """Models whose parameters a loop changes by their gradients: `for p in net.parameters(): p.data -= lr * p.grad`."""
    module = backward.module
    scope = module.scope(backward.call)
    around = scope.function or module.tree
    found = []
    for node in walk(around):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and _reads_gradient(node, node.target.id):
            owner = _owner_of_parameters(node.iter)
            variable = module.variable(owner) if owner is not None else None
            if variable is not None and roles.of(variable) & Role.MODEL:
                found.append(variable)
    return found


def why_no_update(graph: CallGraph, backward: Backward) -> str:
    """What stands in the way when no optimizer over a known model steps after a backward pass."""
    module = backward.module
    function = backward.function
    if graph.roles.project.is_in_torch_module(module, backward.call):
        return "the module trains itself from inside; move the loop out of it, so that the module can be prepared"
    stepped = _unknown_stepper(graph.roles, module, backward)
    if stepped:
        return f"{stepped} steps the optimizer from within, out of sight; step the inner optimizer in the loop"
    if (
        function is not None
        and not graph.sites.get(function)
        and not _is_named_in_a_call(module, function)
        and module.scope(backward.call).owner_class is None
        and not _is_complete(graph.roles, module, function)
    ):
        return caller_not_given(function)
    if not is_stepped(backward):
        return "no optimizer is seen to step after this backward pass"
    return f"{_updated(graph.roles, module, backward)} not known as a model"


def _is_named_in_a_call(module: Module, function: Function) -> bool:
    """Whether its own file calls something of its name: of two functions of one name either may be meant."""
    return any(isinstance(call.func, ast.Name) and call.func.id == function.name for call in module.calls)


def _updated(roles: Roles, module: Module, backward: Backward) -> str:
    """What the optimizer that steps beside a backward pass updates, as it is written, with its verb."""
    for call in _calls_beside(module, backward):
        stepped = module.variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if stepped is not None and call.func.attr == "step" and roles.of(stepped) & Role.OPTIMIZER:  # type: ignore[attr-defined]
            made = [binding.value for binding in module.bindings(stepped) if binding.value is not None]
            owners = [
                owner for value in made for part in walk(value) if (owner := _owner_of_parameters(part)) is not None
            ]
            if owners:
                texts = list(dict.fromkeys(f"`{unparse(owner)}`" for owner in owners))
                parts = ", a part of an object," if any(isinstance(owner, ast.Attribute) for owner in owners) else ""
                return (
                    f"the optimizer updates {' and '.join(texts)}, and {'it' if len(texts) == 1 else 'each'}{parts} is"
                )
    return "what the optimizer updates is"


def caller_not_given(function: Function) -> str:
    return (
        f"the caller of {function.name}(), which builds the model and the optimizer, is not visible to the analysis: "
        "name its file too, and let it import this one by a path that the folders show"
    )


def _reads_gradient(loop: ast.For, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for statement in loop.body
        for node in walk(statement)
    )


def _owner_of_parameters(iterated: ast.AST) -> ast.expr | None:
    if calls_method(iterated, "parameters"):
        return iterated.func.value
    return None


def _unknown_stepper(roles: Roles, module: Module, backward: Backward) -> str:
    """An object that was made of an optimizer and has a stepping method of its own: `schedule.step_and_update_lr()`."""
    for call in _calls_beside(module, backward):
        function = call.func
        if isinstance(function, ast.Attribute) and "step" in function.attr and function.attr != "step":
            owner = module.variable(function.value)
            if owner is not None and _is_made_of_optimizer(roles, owner):
                return unparse(function) + "()"
    return ""


def _is_made_of_optimizer(roles: Roles, variable: Variable) -> bool:
    module = variable.scope.module
    made = [b.value for b in module.bindings(variable) if isinstance(b.value, ast.Call)]
    handed = [a for call in made for a in all_arguments(call)]
    return any(roles.role(module, argument) & Role.OPTIMIZER for argument in handed)


def is_stepped(backward: Backward) -> bool:
    """Whether something steps in the function of a backward pass."""
    beside = _calls_beside(backward.module, backward)
    return any(calls_method(call, "step") for call in beside)


def _is_complete(roles: Roles, module: Module, function: Function) -> bool:
    """Whether a function builds its model itself, and hands it to nobody who may step: what it trains is in it."""
    scope = module.functions[function]
    built = [Variable(scope, name) for name in scope.bindings if roles.of(Variable(scope, name)) & Role.MODEL]
    return not all(module.is_parameter(variable) for variable in built)


def _calls_beside(module: Module, backward: Backward) -> list[ast.Call]:
    """The calls of the function that holds a backward pass."""
    around = backward.function or module.tree
    return module.walk(around, ast.Call)
