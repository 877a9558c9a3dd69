"""AM974: what is averaged to decide is one number of which an average says the same, and its readers still get what they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names
from accel_migrate.check.stores import Stores, returned
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import Function
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module

CODE = "AM974"
_TESTS = frozenset(["isnan", "isfinite", "isinf"])
_EACH = frozenset(
    ["to", "cuda", "cpu", "float", "bool", "long", "int", "double", "half", "type", "detach", "clone", "squeeze"]
)
_OF_TENSOR = frozenset(["item", "detach", "cpu", "clone", "tolist", "numpy", "mean", "sum"])
_NEEDS_INT = frozenset(["range", "hex", "bin", "chr"])


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    stores = side.once(Stores)
    for file, call in side.asked("reduce"):
        if len(call.args) != 2 or not isinstance(call.args[1], ast.Constant) or call.args[1].value != "mean":
            continue  # by a keyword: a collective of the script's own
        figure = _figure(call.args[0])
        text = unparse(figure)[:40]
        outer = _outermost(file, call)
        above = file.parents[outer]
        is_float = outer is not call
        message = ""
        if _has_many(side, stores, file, figure):
            message = f"`{text}` has a value for each row of a batch, and would be averaged over the processes"
        elif _is_guard(file, outer):
            message = f"`{unparse(above)[:60]}` would ask the average of the processes whether there are any"
        elif isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
            read = _other_reader(file, above, above.targets[0], is_float)
            if read is not None:
                message = f"`{text}` would be an average of the processes where `{unparse(read)[:60]}` reads it"
        if message:
            yield Violation(CODE, file.path, call.lineno, message)


def _figure(node: ast.expr) -> ast.expr:
    """What is averaged, out of `torch.tensor(float(loss), dtype=...)` and `loss.detach()`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            node = node.func.value
        elif unparse(node.func) in ("torch.tensor", "float") and node.args:
            node = node.args[0]
        else:
            break
    return node


def _outermost(file: Module, call: ast.Call) -> ast.expr:
    """`accelerator.reduce(...).item()` around the reduction."""
    above = file.parents[call]
    whole = file.parents[above] if isinstance(above, ast.Attribute) and above.attr == "item" else None
    return whole if isinstance(whole, ast.Call) else call


def _is_guard(file: Module, node: ast.expr) -> bool:
    """Whether a value is asked for nothing but whether it is there: `== 0`, `.any()`, `not`."""
    above = file.parents[node]
    match above:
        case ast.Compare(left=left, ops=ops, comparators=others):
            zero = any(isinstance(side, ast.Constant) and side.value == 0 for side in (left, *others))
            return zero or any(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
        case ast.Attribute(attr="any" | "all"):
            return True
        case ast.If() | ast.While() | ast.BoolOp() | ast.IfExp():
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
    return isinstance(above, ast.Call) and unparse(above.func) in ("bool", "torch.any", "torch.all", "any", "all")


def _other_reader(file: Module, made: ast.Assign, target: ast.Name, is_float: bool) -> ast.AST | None:
    """Who reads a name that was set to its average, and needs what it was: an index, a tensor with gradients, a count."""
    scope = file.binder(target.id, file.scope(target))
    for name in file.walk(made if scope is None else scope.node, ast.Name):
        if (
            name.id != target.id
            or not isinstance(name.ctx, ast.Load)
            or file.binder(name.id, file.scope(name)) is not scope
        ):
            continue
        above = file.parents[name]
        if scope is None or all(b.statement is not made for b in reaching(file, name)):
            continue
        first = isinstance(above, ast.Compare) and isinstance(file.parents[above], ast.BoolOp)
        if _is_guard(file, name) and not first:  # `best == 0 or mean < best`: whether it is the first
            return above if isinstance(above, ast.expr) else name
        match above:
            case ast.Attribute(attr=attribute):
                if is_float or attribute not in _OF_TENSOR | _TESTS:
                    return above
            case ast.Subscript():
                return above
            case ast.UnaryOp(op=ast.Invert()) | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return above
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])) if spec.endswith(
                "d"
            ):
                return above
            case ast.Call(func=ast.Name(id=called)) if called in _NEEDS_INT:
                return above
            case ast.Call(func=ast.Attribute(attr="backward")):
                return above
    return None


def _has_many(side: Side, stores: Stores, file: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is known to be a part of a batch, or computed from one row by row."""
    if depth > 8:
        return False
    match node:
        case ast.Compare(left=left, comparators=others):
            return any(_has_many(side, stores, file, part, depth + 1) for part in (left, *others))
        case ast.BinOp(left=left, right=right):
            return any(_has_many(side, stores, file, part, depth + 1) for part in (left, right))
        case ast.UnaryOp(operand=inner):
            return _has_many(side, stores, file, inner, depth + 1)
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _EACH:
            return _has_many(side, stores, file, owner, depth + 1)
        case ast.Call():
            callees = side.flows.callees.get(node, ())
            return any(
                _has_many(side, stores, side.flows.function_file[callee], value, depth + 1)
                for callee in callees
                for value in returned(callee)
            )
        case ast.Name():
            return _names_many(side, stores, file, node, depth)
    return False


def _names_many(side: Side, stores: Stores, file: Module, name: ast.Name, depth: int) -> bool:
    for store in stores.reaching(file, name):
        if store.value is None or store.at or store.anywhere:
            continue
        if store.of[:1] == ("element",):
            if len(store.of) > 1 and _is_loader(side, store.file, store.value, store.of):
                return True
        elif not store.of and _has_many(side, stores, store.file, store.value, depth + 1):
            return True
    scope = file.binder(name.id, file.scope(name))
    function = scope.node if scope is not None else None
    if not isinstance(function, Function) or name.id not in parameter_names(function):
        return False
    given = [(site.file, argument_of(function, site.call, name.id)) for site in side.above(function)]
    return any(
        argument is not None and _has_many(side, stores, caller, argument, depth + 1) for caller, argument in given
    )


def _is_loader(side: Side, file: Module, node: ast.expr, of: tuple[object, ...]) -> bool:
    """Whether a batch of a prepared loader is taken apart, and not the number that `enumerate` gives it."""
    while isinstance(node, ast.Call) and node.args and not is_accelerator(node.func):
        if isinstance(node.func, ast.Name) and node.func.id == "enumerate" and of[1:2] == (("item", 0),):
            return False
        node = node.args[0]
    return bool(side.flows.made(file, node, "prepared"))


CONDITION = Condition(
    code=CODE,
    name="averages",
    summary="what is no number, or a guard of one process's batch, would be averaged over the processes",
    why="A decision on a loss may be taken on its average over processes. A mask, a count of rows or what an index is made of "
    "may not: an average of it is of another kind, and says nothing about the rows that this process has.",
    example_before='kept = accelerator.reduce(kept.detach(), "mean")\nif kept.any():\n    loss = F.mse_loss(out[kept], y[kept])',
    example_after="if kept.any():\n    loss = F.mse_loss(out[kept], y[kept])",
    find=find,
)
