"""Losses between the samples of a batch: a product, a distance or a difference of its rows with rows of a batch.

Silent where no value that the loss comes from is seen to be one, and where one side of it is not seen to have samples, as
weights have none.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.sources import behind, held, run_by
from accel_migrate.flow.nodes import parts_of_value, unparse
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module

_PRODUCTS = ("mm", "matmul", "addmm", "addmm_")
_BY_ROW = ("cosine_similarity", "pairwise_distance")
_TURNS = ("transpose", "permute", "swapaxes", "swapdims")
# What these give has the size of samples at most.
_NOT_SAMPLES = re.compile(
    r"len|range|size|dim|numel|item|new_\w+|\w+_like|zeros|ones|full|empty|eye|arange|linspace|rand\w*"
)
_SIZES = ("shape", "ndim", "device", "dtype")
_ENDS = Role.BATCH | Role.MODEL | Role.LOADER
_DEPTH = 60


class Paired(NamedTuple):
    module: Module
    node: ast.expr
    sure: bool  # False: it may be within each sample as well


@once
def paired_rows(graph: CallGraph, backward: Backward) -> Paired | None:
    """The first pairing of samples that the loss of a backward pass comes from."""
    values = _Values(graph)
    for module, node in behind(graph, backward.module, backward.loss, _ENDS):
        pair = values.pair(module, node)
        if pair is not None and all(values.has_samples(module, side) for side in pair):
            return Paired(module, node, sure=not isinstance(node, ast.Call) or _called(module, node)[0] != "cdist")
    return None


class _Values:
    def __init__(self, graph: CallGraph) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.depth = 0
        self.known: dict[ast.expr, bool] = {}

    # ---- pairs

    def pair(self, module: Module, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """The two sides of an operation that gives a value for each row of one with each row of the other."""
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                return self._product(module, node.left, node.right)
            return self._spread(module, node.left, node.right)
        if not isinstance(node, ast.Call):
            return None
        name, operands = _called(module, node)
        if name in _PRODUCTS and len(operands) > 1:
            return self._product(module, operands[-2], operands[-1], flat=name != "matmul")
        if operands and (name == "pdist" or (_meet_others(name, node) and not self._is_turned(module, operands[0]))):
            return operands[0], operands[0]
        if name == "einsum" and len(operands) == 3 and _pairs_first(operands[0]):
            return operands[1], operands[2]
        if len(operands) > 1 and name == "cdist":
            return operands[0], operands[1]
        return self._spread(module, operands[0], operands[1]) if len(operands) > 1 and name in _BY_ROW else None

    def _product(
        self, module: Module, left: ast.expr, right: ast.expr, flat: bool = False
    ) -> tuple[ast.expr, ast.expr] | None:
        """`a @ b.t()`; where the last dimensions of a batch of matrices may be turned, the product is within each sample."""
        turned = self._held(module, right)
        if isinstance(turned, ast.Attribute) and turned.attr in (("T", "mT") if flat else ("T",)):
            return left, turned.value
        if not isinstance(turned, ast.Call):
            return None
        name, (first, *dims) = _called(module, turned, least=1)
        places = {unparse(dim) for dim in dims}
        if name == "t" or (name in _TURNS and (places == {"0", "1"} or (flat and places == {"-1", "-2"}))):
            return left, first
        return None

    def _spread(self, module: Module, left: ast.expr, right: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """`a.unsqueeze(1) - b.unsqueeze(0)`, `a[:, None] * b[None]`."""
        first, second = _placed(self._held(module, left)), _placed(self._held(module, right))
        if first is None or second is None or {first[1], second[1]} != {0, 1}:
            return None
        return first[0], second[0]

    def _held(self, module: Module, node: ast.expr) -> ast.expr:
        """What a name that is bound once before it stands for."""
        bound = reaching(module, node)
        return (bound[0].whole or node) if len(bound) == 1 else node

    def _is_turned(self, module: Module, node: ast.expr, seen: frozenset[ast.expr] = frozenset()) -> bool:
        """Whether something else than samples may come first: time, as in `x.transpose(0, 1)`, or a list that was stacked."""
        match node:
            case ast.Call() if _called(module, node)[0] in (*_TURNS, "stack", "t"):
                return True
            case ast.Name() if node not in seen:
                bound = [b.value for b in reaching(module, node)]
                return any(b is not None and self._is_turned(module, b, seen | {node}) for b in bound)
            case ast.IfExp(body=body, orelse=orelse):
                return any(self._is_turned(module, each, seen) for each in (body, orelse))
            case ast.Call(func=ast.Attribute(value=inner)):
                return self._is_turned(module, inner, seen)
        return False

    # ---- samples

    def has_samples(self, module: Module, node: ast.expr) -> bool:
        """Whether a value is seen to come of a batch, or of what a model gives for one."""
        if node not in self.known and self.depth < _DEPTH:
            self.known[node] = False  # what is built of itself has what the rest has
            self.depth += 1
            layer = self._layer(module, node)
            if layer is not None and layer.returned:  # its role is that of what a model gives, whatever it gives
                self.known[node] = any(self.has_samples(layer.module, value) for value in layer.returned)
            else:
                role = self.roles.role(module, node)
                given = bool(role & Role.BATCH) or (bool(role & Role.OUTPUT) and not self._is_made_here(module, node))
                found = given or self._comes_of_samples(module, node)
                self.known[node] = found and not _is_size(module, node)
            self.depth -= 1
        return self.known.get(node, False)

    def _is_made_here(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is made of numbers alone: `self.items(torch.arange(30))`, the rows of a table."""
        if depth > 10:
            return False
        match node:
            case ast.Call() if _is_size(module, node):
                return True
            case ast.Call():
                name, given = _called(module, node)
                of_self = (
                    isinstance(node.func, ast.Attribute) and unparse(node.func.value) == module.scope(node).self_name
                )
                return bool(node.args or name in _TURNS) and all(
                    self._is_made_here(module, each, depth + 1) for each in (node.args if of_self else given)
                )
            case ast.Name():
                bound = list(held(self.graph, module, node))
                return bool(bound) and all(self._is_made_here(*each, depth + 1) for each in bound)
            case ast.Attribute():
                return not self.has_samples(module, node)
        return False

    def _layer(self, module: Module, node: ast.expr) -> Definition | None:
        """The forward of `self.places` in `self.places(mask)`, if the project has it."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name == module.scope(node).self_name:
                return run_by(self.graph, module, node)
        return None

    def _comes_of_samples(self, module: Module, node: ast.expr) -> bool:
        match node:
            case ast.Name():
                return self._is_input(module, node) or self._holds_samples(module, node)
            case ast.Attribute():
                if self.roles.role(module, node.value) & Role.MODEL:
                    return False
                return self._holds_samples(module, node) or self.has_samples(module, node.value)
            case ast.Call():
                given = [*_called(module, node)[1], *[keyword.value for keyword in node.keywords]]
                return any(self.has_samples(module, each) for each in given)
            case ast.Compare(left=inner):
                return self.has_samples(module, inner)
        return any(self.has_samples(module, part) for part in parts_of_value(node))

    def _holds_samples(self, module: Module, node: ast.expr) -> bool:
        ends = self.roles.of(module.variable(node)) & _ENDS
        return not ends and any(self.has_samples(*each) for each in held(self.graph, module, node))

    def _is_input(self, module: Module, node: ast.Name) -> bool:
        """Whether a name is what the forward of a module of torch is called with."""
        variable = module.variable(node)
        if variable is None or getattr(variable.scope.node, "name", "") != "forward":
            return False
        scope = variable.scope
        owner = scope.owner_class
        if owner is None or not module.is_parameter(variable) or variable.name == scope.self_name:
            return False
        return bool(self.roles.project.base_names(Definition(module, owner.node)))  # type: ignore[arg-type]


def _is_size(module: Module, node: ast.expr) -> bool:
    """`x.size(0)`, `x.shape[0]`, `torch.zeros_like(x)`: of samples it has the size alone."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr in _SIZES
    return isinstance(node, ast.Call) and _NOT_SAMPLES.fullmatch(_called(module, node)[0]) is not None


def _called(module: Module, call: ast.Call, least: int = 0) -> tuple[str, list[ast.expr]]:
    """The name of a function or a method, and what it takes, with the object whose method it is in front."""
    dotted = module.qualified(call.func)
    if dotted is None and isinstance(call.func, ast.Attribute):
        return call.func.attr, [call.func.value, *call.args]
    return (dotted or unparse(call.func)).rpartition(".")[2], [*call.args] or [call.func] * least


def _meet_others(name: str, call: ast.Call) -> bool:
    """`x.flip(0)`, `torch.roll(x, 1, dims=0)`: rows stand where others stood, whatever they are used with there."""
    said = [keyword.value for keyword in call.keywords if keyword.arg == "dims"] or (
        call.args if name == "flip" else call.args[-1:]
    )
    dims = [part for each in said for part in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])]
    return name in ("flip", "roll") and any(isinstance(dim, ast.Constant) and dim.value == 0 for dim in dims)


def _pairs_first(spelled: ast.expr) -> bool:
    """`"nc,mc->nm"`: the first dimensions of both are apart in what is made."""
    text = (
        spelled.value.replace(" ", "") if isinstance(spelled, ast.Constant) and isinstance(spelled.value, str) else ""
    )
    found = re.fullmatch(r"(\w)\w*,(\w)\w*->(\w+)", text)
    return found is not None and found[1] != found[2] and {found[1], found[2]} <= set(found[3])


def _placed(node: ast.expr) -> tuple[ast.expr, int] | None:
    """What gets a dimension of one, and where."""
    match node:
        case ast.Call(func=ast.Attribute(attr="unsqueeze", value=inner), args=[ast.Constant(value=int(place))]):
            return inner, place
        case ast.Subscript(value=inner, slice=ast.Constant(value=None)):
            return inner, 0
        case ast.Subscript(value=inner, slice=ast.Tuple(elts=[ast.Constant(value=None), *_])):
            return inner, 0
        case ast.Subscript(value=inner, slice=ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None), *_])):
            return inner, 1
    return None
