"""What of a script is on a GPU only if that is one of CUDA: on another accelerator it would stay behind on the CPU.

`if torch.cuda.is_available(): teacher.cuda()` and `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor` stay as
they are, while `prepare` moves the model to any accelerator. Such a script is told to train where it trained: on CUDA, or on
the CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.moves.devices import Move, moves_in
from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import contents
from accel_migrate.flow.nodes import calls_method, unparse, walk
from accel_migrate.flow.scopes import Module, Scope, Variable

_NO_CUDA = "not torch.cuda.is_available()"
_DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")


def is_bound_to_cuda(
    graph: CallGraph,
    creation: Scope,
    modules: Iterable[Module],
    dropped: Iterable[Move],
    kept: Iterable[Move],
    aliases: frozenset[Variable],
    bound: bool,
) -> bool:
    """Whether the model must not go to another accelerator than CUDA."""
    moved = any(is_left_behind(graph, move, aliases) for move in kept)
    files = {*modules, *loaded_with(graph.roles.project, creation.module)}
    return (
        bound
        or moved
        or any(_makes_tensors(graph, module) for module in files)
        or (bool([*dropped, *kept]) and any(True for module in files for _ in doubled(graph.roles, module)))
        or _follows_a_constant(graph, creation.module, {move.call for move in dropped})
    )


def doubled(roles: Roles, module: Module) -> Iterator[ast.Call]:
    """`model.double()`, `x.double()` of a batch, `torch.set_default_dtype(torch.float64)`: Apple's GPU has no such numbers."""
    for call in module.calls:
        wide = any("ouble" in unparse(each) or "64" in unparse(each) for each in call.args)
        if (wide and module.qualified(call.func) in _DEFAULTS) or (
            calls_method(call, "double") and roles.role(module, call.func.value) & (Role.MODEL | Role.BATCH)
        ):
            yield call


def _follows_a_constant(graph: CallGraph, home: Module, dropped: set[ast.Call]) -> bool:
    """`x.to(config.DEVICE)`, or `x.to(device)` of a file beside that has a `device` of its own: CUDA, or the CPU."""
    for module in loaded_with(graph.roles.project, home):
        moved = [move.device for move in moves_in(graph.roles, module) if move.call not in dropped]
        made = [k.value for call in module.calls for k in call.keywords if k.arg == "device"]
        if any(node is not None and goes_by_cuda(graph, module, home, node) for node in (*moved, *made)):
            return True
    return False


def goes_by_cuda(graph: CallGraph, module: Module, home: Module, node: ast.expr) -> bool:
    """Whether a node names a global of another file than the training's that is CUDA if there is CUDA."""
    constant = _constant(graph.roles, module, node)
    owner = constant.scope.module if constant is not None else home
    bindings = owner.bindings(constant) if constant is not None and owner is not home else []
    asked = [e for b in bindings if b.value is not None for e in owner.walk(b.value, ast.IfExp)]
    return any(_is_about_cuda(graph, owner, e.test) for e in asked) or any(
        _asks_for_cuda(graph, owner, binding.target) for binding in bindings
    )


def _constant(roles: Roles, module: Module, node: ast.expr) -> Variable | None:
    """The global that an expression names, of its own file or of another of the project."""
    imported = roles.project.imported_variable(module, module.full_name(node))
    if imported is not None:
        return imported
    variable = module.variable(node)
    return variable if variable is not None and variable.scope is module.root else None


def or_without_cuda(wish: str | None, module: Module, scope: Scope) -> str:
    """When the CPU is asked for: where CUDA is missing, and where the script asked for it before."""
    parts = [ast.parse(text, mode="eval").body for text in (_NO_CUDA, wish) if text is not None]
    if wish is not None and _knows_of_cuda(module, scope, parts[-1]):
        return wish
    return unparse(parts[0] if len(parts) == 1 else ast.BoolOp(ast.Or(), parts))


def _knows_of_cuda(module: Module, scope: Scope, wish: ast.expr) -> bool:
    """`not args.cuda` below `args.cuda = not args.no_cuda and torch.cuda.is_available()`, which is all that sets it."""
    if not isinstance(wish, ast.UnaryOp) or not isinstance(wish.operand, ast.Name | ast.Attribute):
        return False
    variable = module.variable_in(wish.operand, scope)
    bound = module.bindings(variable) if variable is not None else []
    value = bound[0].whole if len(bound) == 1 else None
    if value is None or module.parents[bound[0].statement] is not scope.node:
        return False
    parts = [value]
    for part in parts:
        parts += part.values if isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) else []
    return any(
        isinstance(part, ast.Call) and module.qualified(part.func) == "torch.cuda.is_available" for part in parts
    )


def is_left_behind(graph: CallGraph, move: Move, aliases: frozenset[Variable]) -> bool:
    """Whether a move under a question for CUDA is of something that has tensors and that nothing prepares."""
    module = move.module
    if module.variable(move.receiver) in aliases or not _is_for_cuda_alone(graph, move):
        return False
    made = [(owner, value) for owner, value in contents(graph, module, move.receiver) if isinstance(value, ast.Call)]
    made = [(owner, value) for owner, value in made if not _is_moved(value)]
    return not made or not all(_is_empty_loss(owner, value) for owner, value in made)


def _is_for_cuda_alone(graph: CallGraph, move: Move) -> bool:
    """Whether a move is made only where there is CUDA: `else: x = x.to(device)` makes it on the others."""
    module = move.module
    asked = [choice for choice, _ in module.branches(move.call) if _is_about_cuda(graph, module, choice.test)]
    moves = [other for other in moves_in(graph.roles, module) if other.call is not move.call]
    alike = [other for other in moves if module.variable(other.receiver) == module.variable(move.receiver)]
    return bool(asked) and not any(
        choice in asked and holds != side
        for other in alike
        for choice, side in module.branches(other.call)
        for mine, holds in module.branches(move.call)
        if mine is choice
    )


def _is_moved(value: ast.Call) -> bool:
    """`criterion.cuda()`, which gives back what it moved."""
    return calls_method(value, "cuda", "to")


def _is_empty_loss(module: Module, value: ast.Call) -> bool:
    """`nn.MSELoss()`: it has nothing that could be on a device."""
    if value.args or any(k.arg in ("weight", "pos_weight") for k in value.keywords):
        return False
    dotted = module.full_name(value.func)
    return dotted.startswith("torch.nn.") and dotted.endswith("Loss")


def _makes_tensors(graph: CallGraph, module: Module) -> bool:
    """`torch.cuda.FloatTensor if cuda else torch.FloatTensor`."""
    return any(
        node.attr.endswith("Tensor")
        and module.full_name(node).startswith("torch.cuda.")
        and (_asks_for_cuda(graph, module, node) or _is_one_of_two(module, node))
        for node in module.walk(module.tree, ast.Attribute)
    )


def _is_one_of_two(module: Module, node: ast.Attribute) -> bool:
    """`kind = torch.cuda.FloatTensor`, where another assignment has `torch.FloatTensor` in its place."""
    above = module.parents[node]
    on_cpu = module.full_name(node).replace(".cuda.", ".")
    bound = module.bindings_of(above.targets[0]) if isinstance(above, ast.Assign) else []
    return any(b.value is not None and module.full_name(b.value) == on_cpu for b in bound)


def _asks_for_cuda(graph: CallGraph, module: Module, node: ast.AST) -> bool:
    """Whether the machine is asked for CUDA on the way to a node, in its function."""
    return any(_is_about_cuda(graph, module, choice.test) for choice, _ in module.branches(node))


def _is_about_cuda(graph: CallGraph, module: Module, test: ast.expr, depth: int = 0) -> bool:
    """Whether a question is whether there is CUDA, also by what a name is set to, or by what all callers hand over for it."""
    if isinstance(test, ast.IfExp):  # `True if torch.cuda.is_available() else False`
        return isinstance(test.body, ast.Constant) and _is_about_cuda(graph, module, test.test, depth)
    if isinstance(test, ast.BoolOp):  # `torch.cuda.is_available() and args.gpu`
        return isinstance(test.op, ast.And) and any(_is_about_cuda(graph, module, part, depth) for part in test.values)
    if isinstance(test, ast.Compare):  # `device == "cuda"`, `"cuda" in str(device)`
        named = [part.value for part in walk(test) if isinstance(part, ast.Constant)]
        return isinstance(test.ops[0], ast.Eq | ast.In) and any(str(name).startswith("cuda") for name in named)
    if isinstance(test, ast.Call):
        return module.full_name(test.func) == "torch.cuda.is_available"
    variable = module.variable(test) if isinstance(test, ast.Name | ast.Attribute) else None
    bindings = module.bindings(variable)
    if len(bindings) != 1 or variable is None or depth > 4:
        return False
    if bindings[0].kind == "parameter":
        handed = [(caller, part) for caller, _, part in graph.given(variable)]
        return bool(handed) and all(p is not None and _is_about_cuda(graph, m, p, depth + 1) for m, p in handed)
    value = bindings[0].value
    return value is not None and _is_about_cuda(graph, module, value, depth + 1)
