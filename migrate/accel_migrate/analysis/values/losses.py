"""The kinds that a loss and its parts have, and what the losses of torch give by their settings."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from accel_migrate.flow.nodes import is_none, parts_of_value, walk

WORST = ("sum", "uneven", "weighted", "unknown", "between", "unseen", "mean", "rows", "free")
_WEIGHS = {"CrossEntropyLoss": 0, "NLLLoss": 0, "cross_entropy": 2, "nll_loss": 2}  # where `weight` stands


class Reduced(NamedTuple):
    kind: str
    node: ast.AST | None = None  # where that is seen
    sure: bool = True  # False: one of several that the script chooses from


def criterion(name: str, call: ast.Call) -> Reduced:
    """A loss of torch, by what its function is called with or its class is built with."""
    told = {keyword.arg: keyword.value for keyword in call.keywords}
    weight = weight_of(name, call)
    reduction = told.get("reduction")
    said = reduction.value if isinstance(reduction, ast.Constant) else "mean" if reduction is None else ""
    if said == "sum" or _is_false(told.get("size_average")):
        return Reduced("sum", call)
    if said == "none" or _is_false(told.get("reduce")):
        return Reduced("rows")
    if None in told or said not in ("mean", "batchmean", "elementwise_mean"):
        return Reduced("unknown", call)
    if "ignore_index" in told:
        return Reduced("uneven", call)
    return Reduced("mean") if weight is None else Reduced("weighted", call)


def weight_of(name: str, call: ast.Call) -> ast.expr | None:
    """The weights of classes that a loss is given."""
    place = _WEIGHS.get(name, len(call.args))
    given = [*call.args[place : place + 1], *[k.value for k in call.keywords if k.arg == "weight" and name in _WEIGHS]]
    return next((weight for weight in given if not is_none(weight)), None)


def worst(found: Iterable[Reduced]) -> Reduced:
    return min(found, key=lambda one: WORST.index(one.kind), default=Reduced("free"))


def either(found: list[Reduced]) -> Reduced:
    """What one of several is, of which only one comes about."""
    told = [one for one in found if one.kind != "free"]
    alike = len({one.kind for one in told}) <= 1 and all(one.sure for one in told)
    return worst(found) if alike else worst(found)._replace(sure=False)


def parts_of(value: ast.expr) -> list[ast.expr]:
    """What a value may be, of those that are chosen from or kept together."""
    kept = value.value if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict | ast.List) else value
    if isinstance(kept, ast.Dict | ast.List | ast.Tuple | ast.IfExp):
        return parts_of_value(kept)
    return [value]


def is_loss(name: str) -> bool:
    """A loss of torch, as a class or as a function."""
    return name.endswith(("Loss", "_loss")) or "cross_entropy" in name or name == "kl_div"


def is_of_weights(node: ast.expr) -> bool:
    """`[p.norm() for p in model.parameters()]`, `layer.weight.pow(2)`."""
    if any(
        isinstance(inner, ast.Attribute) and inner.attr in ("parameters", "named_parameters") for inner in walk(node)
    ):
        return True
    while (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or isinstance(node, ast.BinOp):
        node = node.left if isinstance(node, ast.BinOp) else node.func.value  # type: ignore[attr-defined]
    return isinstance(node, ast.Attribute) and node.attr in ("weight", "bias")


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
