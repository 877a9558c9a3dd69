"""Rows: which expressions of an evaluation still hold one row for each sample, whatever batch it came in.

Only what is known to work on each sample by itself counts. A function out of sight, a mean, a sort over the batch or a
norm of all of it mixes samples, and what comes of it depends on how they were grouped.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from enum import Enum

from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.scopes import Module

# Methods, and functions of torch and numpy, that work on each element by itself.
_BY_ELEMENT = {
    "abs", "add", "astype", "bool", "byte", "clamp", "clip", "clone", "contiguous", "cpu", "cuda", "detach", "div", "double",
    "eq", "exp", "float", "ge", "gelu", "gt", "half", "int", "isclose", "le", "log", "logical_and", "logical_not", "logical_or",
    "logit", "logsigmoid", "long", "lt", "mul", "ne", "neg", "numpy", "not_equal", "pow", "relu", "round", "sigmoid", "sign",
    "sqrt", "square", "sub", "tanh", "to", "tolist", "type", "type_as", "where", "asarray", "array", "from_numpy", "as_tensor",
    "expm1", "log1p", "equal", "greater", "less",
}  # fmt: skip
# Those that mix the elements along a dimension, which must be named and must not be that of the samples.
_ALONG = {
    "all", "any", "argmax", "argmin", "argsort", "cumsum", "gather", "log_softmax", "logsumexp", "max", "mean", "min", "norm",
    "normalize", "prod", "select", "softmax", "sort", "squeeze", "std", "sum", "topk", "unsqueeze", "var",
}  # fmt: skip
_ALONG_LAST = {"cosine_similarity", "pairwise_distance"}  # the samples are their first dimension unless told otherwise
_ONE_LINE = {("view", -1), ("reshape", -1), ("flatten", None), ("ravel", None), ("squeeze", None), ("view_as", None)}
_LOSSES_BY_ROW = ("torch.nn.functional.",)
_ATTRIBUTES = {"data", "logits", "values", "indices", "last_hidden_state"}
_PAIRS = {"max", "min", "topk", "sort"}
_LIBRARIES = ("torch.", "numpy.")


class Kind(Enum):
    """What an expression is to the batch."""

    ROWS = "rows"  # one row, or a run of rows, for each sample
    FIXED = "fixed"  # the same whatever the batch
    MIXED = "mixed"  # depends on which samples came together, or is not known


class Rows:
    """Judges expressions below a gather; `gathered` are the names that hold rows there."""

    def __init__(self, module: Module, gathered: Container[str], summed: Container[str]) -> None:
        self.module = module
        self.gathered = gathered
        self.summed = summed  # names that the loop adds to: they change with every batch
        self.parts: set[ast.expr] = set()  # `batch["labels"]`, gathered under a name of its own
        self.measured: set[str] = set()  # names that hold the number of samples of a batch
        self.kinds: dict[str, Kind] = {}

    def assign(self, name: str, kind: Kind) -> None:
        self.kinds[name] = kind

    def kind(self, node: ast.expr) -> Kind:
        if node in self.parts:
            return Kind.ROWS
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Constant):
            return Kind.FIXED
        if isinstance(node, ast.BinOp):
            return self._together((node.left, node.right))
        if isinstance(node, ast.Compare):
            return self._together((node.left, *node.comparators))
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand)
        if isinstance(node, ast.Attribute):
            inner = self.kind(node.value)
            return inner if inner is not Kind.ROWS or node.attr in _ATTRIBUTES else Kind.MIXED
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Tuple | ast.List):
            return self._together(node.elts)
        if isinstance(node, ast.IfExp):
            return self._together((node.test, node.body, node.orelse))
        return Kind.FIXED if self._is_fixed(node) else Kind.MIXED

    def _name(self, name: str) -> Kind:
        if name in self.kinds:
            return self.kinds[name]
        if name in self.gathered:
            return Kind.ROWS
        return Kind.MIXED if name in self.summed or name in self.measured else Kind.FIXED

    def _together(self, parts: Iterable[ast.expr]) -> Kind:
        kinds = {self.kind(part) for part in parts}
        if Kind.MIXED in kinds:
            return Kind.MIXED
        return Kind.ROWS if Kind.ROWS in kinds else Kind.FIXED

    def _is_fixed(self, node: ast.AST) -> bool:
        if any(part in self.parts for part in walk(node)):
            return False
        return all(self._name(n.id) is Kind.FIXED for n in walk(node) if isinstance(n, ast.Name))

    def _subscript(self, node: ast.Subscript) -> Kind:
        inner = self.kind(node.value)
        if inner is not Kind.ROWS:
            return inner if self._is_fixed(node.slice) else Kind.MIXED
        if isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
            return Kind.ROWS if called_name(node.value) in _PAIRS else Kind.MIXED  # `torch.max(out, 1)[1]`
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        if isinstance(first, ast.Slice):
            return Kind.ROWS if first.lower is first.upper is first.step is None else Kind.MIXED
        return Kind.ROWS if self.kind(first) is Kind.ROWS else Kind.MIXED  # a mask over samples

    def _call(self, node: ast.Call) -> Kind:
        if self._is_fixed(node):
            return Kind.FIXED
        dotted = self.module.full_name(node.func)
        name = called_name(node)
        if isinstance(node.func, ast.Name) and not dotted:
            inner = [self.kind(argument) for argument in node.args]
            return Kind.ROWS if name in ("list", "zip") and inner and set(inner) == {Kind.ROWS} else Kind.MIXED
        if dotted:
            if not dotted.startswith(_LIBRARIES) or not node.args:
                return Kind.MIXED
            subjects, options = self._subjects(node), node.args[1:]
        elif isinstance(node.func, ast.Attribute):
            subjects, options = [node.func.value, *self._row_arguments(node.args)], node.args
        else:
            return Kind.MIXED
        if self._together(subjects) is not Kind.ROWS:
            return Kind.MIXED
        return Kind.ROWS if self._keeps_rows(node, name, dotted, options) else Kind.MIXED

    def _subjects(self, node: ast.Call) -> list[ast.expr]:
        return [node.args[0], *self._row_arguments(node.args[1:])]

    def _row_arguments(self, arguments: list[ast.expr]) -> list[ast.expr]:
        return [argument for argument in arguments if not self._is_fixed(argument)]

    def _keeps_rows(self, node: ast.Call, name: str, dotted: str, options: list[ast.expr]) -> bool:
        said = {k.arg: k.value for k in node.keywords}
        if name in _BY_ELEMENT:
            return True
        if dotted.startswith(_LOSSES_BY_ROW) and any(k.arg == "reduction" for k in node.keywords):
            return unparse(said["reduction"]) == "'none'"
        if (name, None) in _ONE_LINE and not options and not said:
            return True
        if name in ("view", "reshape") and len(options) == 1 and unparse(options[0]) == "-1":
            return True
        if name == "view_as":
            return True
        if name in _ALONG_LAST and not said:
            return True
        if name in _ALONG:
            named = said.get("dim") or said.get("axis") or self._dimension(name, options)
            return named is not None and _leaves_samples(named)
        return False

    def _dimension(self, name: str, options: list[ast.expr]) -> ast.expr | None:
        """The dimension among the positional arguments: the first, and for `topk` the one behind how many."""
        place = 1 if name in ("topk", "norm") else 0
        if name == "topk" and len(options) == 1:
            return ast.Constant(-1)
        return options[place] if len(options) > place else None


def _leaves_samples(dimension: ast.expr) -> bool:
    """Whether a dimension, or each of several, is known and is not the first."""
    parts = dimension.elts if isinstance(dimension, ast.Tuple | ast.List) else [dimension]
    for part in parts:
        try:
            value = ast.literal_eval(part)
        except ValueError:
            return False
        if not isinstance(value, int) or isinstance(value, bool) or value == 0:
            return False
    return bool(parts)
