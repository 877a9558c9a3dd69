"""The forward of an evaluation loop: which statement runs the model, and which names then hold one row per sample."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.figures import Figures, Kind, NotExact
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Module

# Methods of a model that set it up and do not run it.
_SETS_UP = {
    "train", "eval", "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "zero_grad", "requires_grad_", "parameters",
    "named_parameters", "modules", "named_modules", "children", "buffers", "state_dict", "load_state_dict", "apply",
}  # fmt: skip
_UNNAMED = "the model's output is used without a name of its own"


@dataclass(frozen=True, eq=False)
class Forward:
    """The model runs in `statement`; after `after`, `names` hold rows, and `rest` is what comes then."""

    statement: ast.Assign
    after: ast.stmt
    names: tuple[str, ...]
    rest: list[ast.stmt]


def runs_model(roles: Roles, module: Module, node: ast.Call) -> bool:
    if roles.role(module, node.func) & Role.MODEL:
        return True
    method = node.func if isinstance(node.func, ast.Attribute) and node.func.attr not in _SETS_UP else None
    return method is not None and bool(roles.role(module, method.value) & Role.MODEL)


def find_forward(figures: Figures, loop: ast.For | ast.AsyncFor) -> Forward:
    """The forward of a loop; raises NotExact where its rows cannot be told."""
    statement, rest = _split(figures, loop, loop.body)
    if figures.kind(statement.value) is not Kind.ROWS:  # as that of `criterion(model(x), y)`
        raise NotExact(_UNNAMED, statement)
    target = statement.targets[0]
    if isinstance(target, ast.Tuple):
        names = [item.id for item in target.elts if isinstance(item, ast.Name)]
        used = [name for name in names if reads(rest, name)]
        if len(names) != len(target.elts) or len(used) != 1:
            raise NotExact("the model returns several values", statement)
        return Forward(statement, statement, tuple(used), rest)
    if not isinstance(target, ast.Name):
        raise NotExact(_UNNAMED, statement)
    if not reads(rest, target.id):
        raise NotExact("the model's output is not used by its name", statement)
    if not _parts(figures.module, rest, target.id):
        return Forward(statement, statement, (target.id,), rest)
    return _derived(figures, statement, target.id, rest)


def _derived(figures: Figures, statement: ast.Assign, output: str, rest: list[ast.stmt]) -> Forward:
    """`outputs.logits`: what is returned is more than rows, so the rows are gathered once they have a name."""
    derived: list[str] = []
    after: ast.stmt = statement
    figures.kinds[output] = Kind.MIXED
    for each in rest:
        target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
        if not isinstance(target, ast.Name):
            break
        figures.parts |= {part for part in _parts(figures.module, [each], output) if _holds_rows(part)}
        if figures.kind(each.value) is not Kind.ROWS:  # type: ignore[attr-defined]
            break
        figures.kinds[target.id] = Kind.ROWS
        derived.append(target.id)
        after = each
    rest = rest[len(derived) :]
    used = [name for name in derived if reads(rest, name)]
    if not used or reads(rest, output):
        raise NotExact("the model returns several values", statement)
    return Forward(statement, after, tuple(used), rest)


def _split(figures: Figures, loop: ast.stmt, body: list[ast.stmt]) -> tuple[ast.Assign, list[ast.stmt]]:
    """The forward, and what comes after it in the same block or, when it stands in a `with`, after that."""
    for index, statement in enumerate(body):
        calls = _model_calls(figures, statement)
        if isinstance(statement, ast.With) and calls:
            forward, rest = _split(figures, loop, statement.body)
            return forward, [*rest, *body[index + 1 :]]
        if calls:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                raise NotExact(_UNNAMED, statement)
            rest = body[index + 1 :]
            later = [call for each in rest for call in _model_calls(figures, each)]
            if later:
                one = len({_model_of(figures, call) for call in (*calls, *later)}) == 1
                times = "the model is called more than once" if one else "several models are called"
                raise NotExact(f"{times} in the loop", statement)
            return statement, rest
        if not isinstance(statement, ast.Assign | ast.Expr | ast.AugAssign | ast.AnnAssign | ast.If | ast.For):
            raise NotExact("the loop does more than evaluate", statement)
    raise NotExact("the model is not called in the loop itself", loop)


def _model_of(figures: Figures, call: ast.Call) -> str:
    """`model` of `model(x)` and of `model.loss(out, y)`."""
    method = not figures.roles.role(figures.module, call.func) & Role.MODEL and isinstance(call.func, ast.Attribute)
    return unparse(call.func.value if method else call.func)  # type: ignore[attr-defined]


def _parts(module: Module, rest: list[ast.stmt], name: str) -> list[ast.expr]:
    """What an output is read by, where that is a part of it: `outputs.logits`, `outputs[0]`, `outputs["out"]`."""
    found: list[ast.expr] = []
    for node in (node for statement in rest for node in walk(statement)):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            match module.parents[node]:
                case ast.Subscript(value=value, slice=ast.Constant(value=str() | int())) as part if value is node:
                    found.append(part)
                case ast.Attribute(attr=attr) as part if attr not in ("data", "shape", "T"):
                    found += [part] if not isinstance(module.parents[part], ast.Call) else []
    return found


def _holds_rows(part: ast.expr) -> bool:
    if isinstance(part, ast.Attribute):
        return "loss" not in part.attr
    return isinstance(part, ast.Subscript) and unparse(part.slice) in ("'logits'", "'out'")


def _model_calls(figures: Figures, statement: ast.stmt) -> list[ast.Call]:
    return [node for node in walk(statement) if isinstance(node, ast.Call) and figures.runs(node)]


def reads(statements: list[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for statement in statements
        for node in walk(statement)
    )
