"""Numbers that each process draws for itself, put into weights or gradients that are alike on all: they part in silence."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.evidence import Side, is_accelerator
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.scopes import Module

_DRAWS = (
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like", "randint_like",
)  # fmt: skip
_DRAWN_IN_PLACE = (
    "normal_",
    "uniform_",
    "random_",
    "bernoulli_",
    "exponential_",
    "log_normal_",
    "cauchy_",
    "geometric_",
)
_FIXED = ("zeros_", "ones_", "constant_", "eye_", "dirac_", "calculate_gain")
_OF_WEIGHTS = ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers")


def drawn_anew(side: Side) -> Iterator[tuple[Module, ast.AST, str]]:
    """Statements after `prepare` that draw what they put into a prepared model, or into its gradients."""
    for file in side.involved:
        drawing = {file.statement(call) for call in file.walk(file.tree, ast.Call) if _draws(side, file, call)}
        for node in file.walk(file.tree, ast.Expr, ast.Assign, ast.AugAssign) if drawing else ():
            if node not in drawing:
                continue
            changed = _changed(node)
            if any(_is_of_model(side, file, each) for each in changed) and side.after_prepare(file, node):
                yield (
                    file,
                    node,
                    f"`{unparse(node)[:60]}` would put what each process draws into weights that are alike on all",
                )


def _changed(node: ast.AST) -> list[ast.expr]:
    """What a statement changes in place: `p.grad` of `p.grad.add_(x)`, `layer` of `layer.reset_parameters()`."""
    if isinstance(node, ast.Assign):
        return [target for target in node.targets if isinstance(target, ast.Attribute | ast.Subscript)]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    found: list[ast.expr] = []
    for part in walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            name = part.func.attr
            if name.endswith("_") or name in ("reset_parameters", "apply"):
                found += [part.func.value, *part.args[:1]]  # `nn.init.normal_(layer.weight)` changes what it is given
    return found


def _draws(side: Side, file: Module, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    dotted = file.qualified(node.func) or ""
    if dotted.startswith(("torch.nn.init.", "torch.nn.utils.init.")):
        return name not in _FIXED
    if dotted.startswith(("numpy.random.", "random.")) or (dotted.startswith("torch.") and name in _DRAWS):
        return True
    if not dotted and isinstance(node.func, ast.Attribute) and name == "reset_parameters":
        own = side.flows.callees.get(node, ())  # a method of the project may do anything by that name
        return not own or any(_draws_inside(side, each, node) for each in own)
    return not dotted and isinstance(node.func, ast.Attribute) and name in _DRAWN_IN_PLACE


def _draws_inside(side: Side, function: ast.AST, call: ast.Call) -> bool:
    file = next(file for file in side.files if function in file.parents)
    return any(_draws(side, file, part) for part in walk(function) if part is not call)


def _is_of_model(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether an expression is reached from a prepared model: a part, a parameter that a loop goes over, its gradient."""
    while True:
        if _is_model(side, file, node):
            return True
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case ast.Name():
                return any(_goes_over_weights(side, file, loop.iter) for loop in _loops_that_bind(file, node))
            case _:
                return False


def _is_model(side: Side, file: Module, node: ast.expr) -> bool:
    """A prepared object that is not looped over, or `accelerator.unwrap_model(model)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "unwrap_model" and is_accelerator(node.func.value)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    return any(made not in side.looped_over for made in side.flows.made(file, node, "prepared"))


def _loops_that_bind(file: Module, name: ast.Name) -> Iterator[ast.For]:
    for above in file.ancestors(name):
        if isinstance(above, ast.For) and any(isinstance(n, ast.Name) and n.id == name.id for n in walk(above.target)):
            yield above


def _goes_over_weights(side: Side, file: Module, looped: ast.expr) -> bool:
    """`model.parameters()`, `accelerator.unwrap_model(model)`, also behind `enumerate` and `zip`."""
    for part in walk(looped):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _OF_WEIGHTS:
            if _is_of_model(side, file, part.func.value):
                return True
        elif isinstance(part, ast.Call) and _is_model(side, file, part):
            return True
    return False
