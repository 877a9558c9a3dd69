"""What an expression of an evaluation is to its batch: one row for each sample, a sum or a mean over them, or neither.

Only what is known to work on each sample by itself keeps rows. A function out of sight, a sort over the batch or a norm of all
of it mixes samples, and what comes of it depends on how they were grouped.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from enum import Enum

from accel_migrate.analysis.values.constructions import all_constructions
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.losses import criterion, is_loss
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import called_name, is_zero, unparse, walk
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.flow.torch_api import itself

# Methods, and functions of torch and numpy, that work on each element by itself.
_BY_ELEMENT = {
    "abs", "add", "astype", "bool", "byte", "clamp", "clip", "clone", "contiguous", "cpu", "cuda", "detach", "div", "double",
    "eq", "exp", "float", "ge", "gelu", "gt", "half", "int", "isclose", "le", "log", "logical_and", "logical_not", "logical_or",
    "logit", "logsigmoid", "long", "lt", "mul", "ne", "neg", "numpy", "not_equal", "pow", "relu", "round", "sigmoid", "sign",
    "sqrt", "square", "sub", "tanh", "to", "tolist", "type", "type_as", "where", "asarray", "array", "from_numpy", "as_tensor",
    "expm1", "log1p", "equal", "greater", "less", "view_as",
}  # fmt: skip
# Those that mix the elements along a dimension, which must be named and must not be that of the samples.
_ALONG = {
    "all", "any", "argmax", "argmin", "argsort", "cumsum", "gather", "log_softmax", "logsumexp", "max", "mean", "min", "norm",
    "normalize", "prod", "select", "softmax", "sort", "squeeze", "std", "sum", "topk", "unsqueeze", "var",
}  # fmt: skip
_ALONG_LAST = {"cosine_similarity", "pairwise_distance"}  # the samples are their first dimension unless told otherwise
_ONE_LINE = {"flatten", "ravel", "squeeze"}
_ATTRIBUTES = {"data", "logits", "values", "indices", "last_hidden_state"}
_PAIRS = {"max", "min", "topk", "sort"}
_LIBRARIES = ("torch.", "numpy.")
_OF_NUMBERS = {"item", "cpu", "detach", "numpy", "float", "double", "long", "int", "tolist"}


class NotExact(Exception):
    """Why a figure depends on how samples are grouped into batches."""

    def __init__(self, reason: str, node: ast.AST) -> None:
        super().__init__(reason)
        self.node = node
        self.line = getattr(node, "lineno", 1)


def stored_in(target: ast.Subscript | ast.Attribute) -> str:
    """The reason, where a loop stores by position, or in an object from outside of it."""
    if isinstance(target, ast.Attribute):
        return f"`{unparse(target)}` is set by each batch"
    return "results are stored by position"


class Kind(Enum):
    """What an expression is to the batch."""

    ROWS = "rows"  # one row, or a run of rows, for each sample
    FIXED = "fixed"  # the same whatever the batch
    SIZE = "size"  # the number of its samples
    SUM = "sum"  # over its samples
    MEAN = "mean"
    EXTREME = "extreme"  # the largest or smallest of all
    MIXED = "mixed"  # depends on which samples came together, or is not known


_NUMBERS = {Kind.SIZE, Kind.SUM, Kind.MEAN, Kind.EXTREME}
_LOSSES = {"mean": Kind.MEAN, "sum": Kind.SUM, "rows": Kind.ROWS}


class Figures:
    """Judges the expressions of one loop; `rows` are the names that hold rows there, and grow.

    Those that are `local` hold what is of this process's batch alone, those that are `summed` change with every batch. A call
    of which `runs` holds runs the model.
    """

    def __init__(
        self,
        roles: Roles,
        graph: CallGraph,
        module: Module,
        rows: Collection[str],
        summed: set[str],
        runs: Callable[[ast.Call], bool],
    ) -> None:
        self.roles = roles
        self.graph = graph
        self.module = module
        self.rows = rows
        self.summed = summed
        self.runs = runs
        self.local: set[str] = set()
        self.parts: set[ast.expr] = set()  # `batch["labels"]`, gathered under a name of its own
        self.kinds: dict[str, Kind] = {}
        self.lists: set[str] = set()  # of rows

    def check_additive(self, node: ast.expr) -> None:
        """Raise NotExact unless the expression is a sum over samples."""
        kind = self.kind(node)
        if kind is Kind.FIXED:
            raise NotExact("the number of batches is counted, and gathered rows come in fewer", node)
        if kind is Kind.MEAN:
            raise NotExact("a mean of batch means depends on how samples are grouped", node)
        if kind not in (Kind.SUM, Kind.SIZE):
            raise NotExact(f"`{_shortened(node)}` is not known to be a sum over samples", node)

    def check_rows(self, node: ast.expr) -> None:
        """Raise NotExact unless what is collected are rows of the gathered tensors."""
        kind = self.kind(node)
        if kind is Kind.FIXED:
            raise NotExact("the number of batches is counted, and gathered rows come in fewer", node)
        if kind is not Kind.ROWS:
            raise NotExact(f"`{_shortened(node)}` is not known to hold one row for each sample", node)

    def check_extreme(self, node: ast.expr) -> None:
        """Raise NotExact unless the value is the largest or smallest of all rows."""
        if self.kind(node) is not Kind.EXTREME:
            raise NotExact(f"`{_shortened(node)}` is not known to be the same for any batches", node)

    def assign(self, name: str, value: ast.expr) -> None:
        self.kinds[name] = self.kind(value)
        if self.extends(value):
            self.lists.add(name)

    def extends(self, node: ast.expr) -> bool:
        """Whether `list += node` adds the elements of rows, one for each sample."""
        if isinstance(node, ast.Name):
            return node.id in self.lists
        return isinstance(node, ast.Call) and called_name(node) in ("tolist", "list") and self.kind(node) is Kind.ROWS

    def kind(self, node: ast.expr) -> Kind:
        match node:
            case _ if node in self.parts:
                return Kind.ROWS
            case ast.Name():
                return self._name(node.id)
            case ast.Constant():
                return Kind.FIXED
            case ast.BinOp():
                return self._operation(node)
            case ast.Compare(left=left, comparators=others):
                return self._together((left, *others))
            case ast.UnaryOp(operand=inner):
                return self.kind(inner)
            case ast.Attribute(value=inner, attr=name):
                kind = self.kind(inner)
                kept = kind is Kind.FIXED or name == "data" or (kind is Kind.ROWS and name in _ATTRIBUTES)
                return kind if kept else Kind.MIXED
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return self._together(parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._together((test, body, orelse))
        return Kind.FIXED if self._is_fixed(node) else Kind.MIXED

    def _name(self, name: str) -> Kind:
        if name in self.kinds:
            return self.kinds[name]
        if name in self.rows:
            return Kind.ROWS
        return Kind.MIXED if name in self.summed or name in self.local else Kind.FIXED

    def _together(self, parts: Iterable[ast.expr]) -> Kind:
        kinds = {self.kind(part) for part in parts}
        if not kinds <= {Kind.ROWS, Kind.FIXED}:
            return Kind.MIXED
        return Kind.ROWS if Kind.ROWS in kinds else Kind.FIXED

    def _is_fixed(self, node: ast.AST) -> bool:
        names = (n.id for n in walk(node) if isinstance(n, ast.Name))
        return not any(part in self.parts for part in walk(node)) and all(self._name(n) is Kind.FIXED for n in names)

    def _operation(self, node: ast.BinOp) -> Kind:
        left, right = self.kind(node.left), self.kind(node.right)
        both = {left, right}
        match node.op:
            case ast.Add() | ast.Sub() if both <= {Kind.SUM, Kind.SIZE}:
                return Kind.SUM
            case ast.Mult() if both == {Kind.MEAN, Kind.SIZE}:
                return Kind.SUM
            case ast.Mult() if Kind.FIXED in both and both & {Kind.SUM, Kind.SIZE, Kind.MEAN}:
                return Kind.MEAN if Kind.MEAN in both else Kind.SUM
            case ast.Div() if right is Kind.FIXED and left in (Kind.SUM, Kind.SIZE, Kind.MEAN):
                return Kind.MEAN if left is Kind.MEAN else Kind.SUM
            case ast.Div() if left is Kind.SUM and right is Kind.SIZE:
                return Kind.MEAN
        return self._together((node.left, node.right))

    def _subscript(self, node: ast.Subscript) -> Kind:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" and is_zero(node.slice):
            if self._is_of_batch(node.value.value):
                return Kind.SIZE
        inner = self.kind(node.value)
        if inner is Kind.MEAN or (inner in _NUMBERS and is_zero(node.slice)):
            return inner  # the figures of a function that returns several, `loss.data[0]`
        if inner is not Kind.ROWS:
            return inner if self._is_fixed(node.slice) else Kind.MIXED
        if isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
            return Kind.ROWS if called_name(node.value) in _PAIRS else Kind.MIXED  # `torch.max(out, 1)[1]`
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        if isinstance(first, ast.Slice):
            return Kind.ROWS if first.lower is first.upper is first.step is None else Kind.MIXED
        return Kind.ROWS if self.kind(first) is Kind.ROWS else Kind.MIXED  # a mask over samples

    def _is_of_batch(self, node: ast.expr) -> bool:
        return self.kind(node) is Kind.ROWS or (isinstance(node, ast.Name) and node.id in self.local)

    def _call(self, node: ast.Call) -> Kind:
        if self.runs(node):
            return Kind.ROWS
        dotted, name, function = self.module.full_name(node.func), called_name(node), node.func
        if isinstance(function, ast.Attribute) and not dotted:
            counts = name == "numel" or (name == "size" and len(node.args) == 1 and is_zero(node.args[0]))
            if counts and self._is_of_batch(function.value):
                return Kind.SIZE
            inner = self.kind(function.value)
            if inner in _NUMBERS:
                return inner if name in _OF_NUMBERS else Kind.MIXED
        elif isinstance(function, ast.Name) and not dotted and len(node.args) == 1:
            inner = self.kind(node.args[0])
            if name == "len" and self._is_of_batch(node.args[0]):
                return Kind.SIZE
            if name in ("float", "int") and inner in _NUMBERS:
                return inner
        if self._is_fixed(node):
            return Kind.FIXED
        return self._loss(node, dotted) or self._of_rows(node, name, dotted)

    def _of_rows(self, node: ast.Call, name: str, dotted: str) -> Kind:
        """What a method, or a function of torch or numpy, makes of rows."""
        target = self.roles.function(self.module, node)
        if target is not None and divides_by_batch(target.node):
            return Kind.MEAN
        if isinstance(node.func, ast.Name) and not dotted:
            if {self.kind(argument) for argument in node.args} != {Kind.ROWS}:
                return Kind.MIXED
            return Kind.ROWS if name in ("list", "zip") else Kind.SUM if name == "sum" else Kind.MIXED
        if isinstance(node.func, ast.Attribute) and not dotted:
            subject, options = node.func.value, node.args
        elif dotted.startswith(_LIBRARIES) and node.args:
            subject, options = node.args[0], node.args[1:]
        else:
            return Kind.MIXED
        if self._together([subject, *[option for option in options if not self._is_fixed(option)]]) is not Kind.ROWS:
            return Kind.MIXED
        if self._keeps_rows(node, name, dotted, options):
            return Kind.ROWS
        if name in ("sum", "count_nonzero"):
            return Kind.SUM
        whole = not options and not node.keywords
        return {"mean": Kind.MEAN, "max": Kind.EXTREME, "min": Kind.EXTREME}.get(name if whole else "", Kind.MIXED)

    def _keeps_rows(self, node: ast.Call, name: str, dotted: str, options: list[ast.expr]) -> bool:
        said = {k.arg: k.value for k in node.keywords}
        if (
            name in _BY_ELEMENT
            or (name in _ONE_LINE and not options and not said)
            or (name in _ALONG_LAST and not said)
        ):
            return True
        if name in ("view", "reshape") and len(options) == 1 and unparse(options[0]) == "-1":
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

    # ---- losses

    def _loss(self, node: ast.Call, dotted: str) -> Kind | None:
        """What a loss of torch, or a criterion that was built of one, gives; None if that is not known."""
        if dotted.startswith("torch.nn.functional."):
            found = _given_by(dotted, node, 2)
        elif self.roles.role(self.module, node.func) & Role.CRITERION:
            made = all_constructions(self.roles, self.graph, self.module, node.func) or []
            built = [(owner, call) for owner, part in made if isinstance(call := itself(part), ast.Call)]
            kinds = {_given_by(owner.full_name(call.func), call, 0) for owner, call in built}
            found = kinds.pop() if len(kinds) == 1 and len(built) == len(made) else None
        else:
            return None
        return None if found is Kind.ROWS and self._together(node.args) is not Kind.ROWS else found


def _given_by(dotted: str, call: ast.Call, plain: int) -> Kind | None:
    """What a loss of torch gives, by its name and its settings; with more than those `plain` arguments a mean may be none."""
    name = dotted.rpartition(".")[2]
    found = _LOSSES.get(criterion(name, call).kind) if dotted.startswith("torch.nn.") and is_loss(name) else None
    return None if found is Kind.MEAN and len(call.args) > plain else found


def divides_by_batch(function: Function) -> bool:
    """Whether a function returns counts divided by `target.size(0)`, as every `accuracy(output, target)` does."""
    sizes = {
        target.id
        for node in walk(function)
        if isinstance(node, ast.Assign) and _speaks_of_size(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    divisors = [node.right for node in walk(function) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    by_size = [d for d in divisors if (isinstance(d, ast.Name) and d.id in sizes) or _speaks_of_size(d)]
    others = [d for d in divisors if d not in by_size and not isinstance(d, ast.Constant)]
    called = {node.attr for node in walk(function) if isinstance(node, ast.Attribute)}
    return bool(by_size) and not others and "sum" in called and "mean" not in called


def _speaks_of_size(node: ast.expr) -> bool:
    text = unparse(node)
    return text.endswith((".size(0)", ".shape[0]")) or text.startswith("len(")


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


def _shortened(node: ast.AST) -> str:
    text = unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
