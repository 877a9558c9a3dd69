"""Figures that an evaluation adds up: is each step a sum over samples, whatever batches they come in?"""

from __future__ import annotations

import ast

from accel_migrate.analysis.evaluation.rows import Kind, Rows
from accel_migrate.analysis.values.roles import Role, Roles, given_by
from accel_migrate.flow.nodes import called_name, calls_method, is_call_of, is_falsy, is_zero, unparse, walk
from accel_migrate.flow.scopes import Function, Module, Variable
from accel_migrate.flow.torch_api import MOVES, itself

_MEAN_LOSSES = {
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}  # fmt: skip
_MEAN_CRITERIA = {
    "CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss",
    "MarginRankingLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "SoftMarginLoss", "TripletMarginLoss",
}  # fmt: skip
_UNWRAPPED_METHODS = {"item", "cpu", "detach", "numpy", "float", "double", "long", "int", "tolist"}
_CHANGES_MEAN = {"weight", "ignore_index", "reduction", "size_average", "reduce"}
_BATCHES = "the number of batches is counted, and gathered rows come in fewer"


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


class Figures:
    """Judges the expressions of one evaluation loop; `assigned` holds what its names stand for, `rows` which hold rows."""

    def __init__(self, roles: Roles, module: Module, rows: Rows) -> None:
        self.roles = roles
        self.module = module
        self.rows = rows
        self.assigned: dict[str, ast.expr] = {}

    def check_additive(self, node: ast.expr, depth: int = 0) -> None:
        """Raise NotExact unless the expression is a sum over samples."""
        node = unwrapped(node)
        if isinstance(node, ast.Name) and node.id in self.assigned and depth < 4:
            self.check_additive(self.assigned[node.id], depth + 1)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            self.check_additive(node.left, depth)
            self.check_additive(node.right, depth)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            self._check_product(node, depth)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self.rows.kind(node.right) is Kind.FIXED:
            self.check_additive(node.left, depth)
            return
        if self.is_size(node) or self._is_sum(node):
            return
        if self.rows.kind(node) is Kind.FIXED:
            raise NotExact(_BATCHES, node)
        if self.is_sample_mean(node, depth):
            raise NotExact("a mean of batch means depends on how samples are grouped", node)
        raise NotExact(f"`{shortened(node)}` is not known to be a sum over samples", node)

    def _check_product(self, node: ast.BinOp, depth: int) -> None:
        for mean, count in ((node.left, node.right), (node.right, node.left)):
            if self.is_size(count) and self.is_sample_mean(mean, depth):
                return
            if self.rows.kind(count) is Kind.FIXED and self.rows.kind(mean) is not Kind.FIXED:
                self.check_additive(mean, depth)
                return
        raise NotExact("a product that is not a batch mean times its number of samples is added up", node)

    def check_rows(self, node: ast.expr) -> None:
        """Raise NotExact unless what is collected are rows of the gathered tensors."""
        kind = self.rows.kind(node)
        if kind is Kind.FIXED:
            raise NotExact(_BATCHES, node)
        if kind is Kind.MIXED:
            raise NotExact(f"`{shortened(node)}` is not known to hold one row for each sample", node)

    def extends(self, node: ast.expr) -> bool:
        """Whether `list += node` adds the elements of rows, one for each sample."""
        if self.rows.kind(node) is not Kind.ROWS:
            return False
        if isinstance(node, ast.Name):
            node = self.assigned.get(node.id, node)
        name = node.func if isinstance(node, ast.Call) else None
        last = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
        return last in ("tolist", "list") or isinstance(node, ast.ListComp)

    def check_extreme(self, node: ast.expr) -> None:
        """Raise NotExact unless the value is the largest or smallest of all rows."""
        node = unwrapped(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
            name = node.func.attr
            inner = node.args if self.module.qualified(node.func) else [node.func.value, *node.args]
            if name in ("max", "min") and len(inner) == 1 and self.rows.kind(inner[0]) is Kind.ROWS:
                return
        raise NotExact(f"`{shortened(node)}` is not known to be the same for any batches", node)

    def is_loss_by_row(self, node: ast.expr) -> bool:
        """Whether a criterion of torch that does not reduce is called on rows."""
        built = self._criteria(node) if isinstance(node, ast.Call) else []
        return (
            bool(built)
            and all(self.rows.kind(part) is Kind.ROWS for part in node.args)  # type: ignore[attr-defined]
            and all(_reduces_nothing(owner, call) for owner, call in built)
        )

    def is_size(self, node: ast.expr) -> bool:
        node = unwrapped(node)
        if isinstance(node, ast.Name) and node.id in self.rows.measured:
            return True
        if isinstance(node, ast.Name) and node.id in self.assigned:
            node = unwrapped(self.assigned[node.id])
        if isinstance(node, ast.Call):
            if is_call_of(node, "len") and len(node.args) == 1:
                return isinstance(node.args[0], ast.Name) and self.rows.kind(node.args[0]) is not Kind.MIXED
            if isinstance(node.func, ast.Attribute):
                return (node.func.attr == "size" and len(node.args) == 1 and is_zero(node.args[0])) or (
                    node.func.attr == "numel"
                )
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "shape"
            and is_zero(node.slice)
        )

    def is_sample_mean(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is the plain mean over the samples of the batch: a loss, or the project's own accuracy."""
        node = unwrapped(node)
        if isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.assigned and depth < 4:
            return self.is_sample_mean(self.assigned[node.id], depth + 1)
        if not isinstance(node, ast.Call):
            return False
        if calls_method(node, "mean") and not node.keywords:
            over = node.args if self.module.qualified(node.func) else [node.func.value, *node.args]
            return len(over) == 1 and self.rows.kind(over[0]) is Kind.ROWS
        built = self._criteria(node)
        if built:
            return all(self._is_mean(owner, b) for owner, b in built)
        dotted = self.module.full_name(node.func)
        if dotted.startswith("torch.nn.functional.") and dotted.rpartition(".")[2] in _MEAN_LOSSES:
            return len(node.args) <= 2 and not any(_changes_mean(k) for k in node.keywords)
        target = self.roles.function(self.module, node)
        return target is not None and divides_by_batch(target.node)

    def is_weighted_meter(self, call: ast.Call) -> bool:
        """`meter.update(mean, size)` of a class of the project that adds up `mean * size` and `size`."""
        target = self.roles.function(self.module, call)
        if target is None or len(call.args) != 2 or call.keywords:
            return False
        names = [argument.arg for argument in target.node.args.args[1:]]
        if len(names) != 2:
            return False
        sums = [unparse(s.value) for s in walk(target.node) if isinstance(s, ast.AugAssign)]
        value, count = names
        return sorted(sums) == sorted([f"{value} * {count}", count]) or sorted(sums) == sorted(
            [f"{count} * {value}", count]
        )

    def _is_mean(self, module: Module, built: ast.Call) -> bool:
        """Whether a criterion of torch was built to give the plain mean over samples."""
        owner, _, name = module.full_name(built.func).rpartition(".")
        if not owner.startswith("torch.nn") or name not in _MEAN_CRITERIA or built.args:
            return False
        return not any(k.arg is None or _changes_mean(k) for k in built.keywords)

    def _is_sum(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = called_name(node)
        if name in ("sum", "count_nonzero"):
            bound = isinstance(node.func, ast.Attribute) and self.module.qualified(node.func) is None
            summed = node.func.value if bound else node.args[0] if node.args else None  # type: ignore[attr-defined]
            return summed is not None and self.rows.kind(summed) is Kind.ROWS
        dotted = self.module.full_name(node.func)
        if dotted.startswith("torch.nn.functional.") and sums(node):
            return True
        built = self._criteria(node)
        return bool(built) and all(
            sums(one) and owner.full_name(one.func).startswith("torch.nn.") for owner, one in built
        )

    def _criteria(self, node: ast.Call) -> list[tuple[Module, ast.Call]]:
        """How the criterion that is called here may have been built, followed through parameters."""
        if not self.roles.role(self.module, node.func) & Role.CRITERION:
            return []
        found = []
        if isinstance(node.func, ast.Call):  # `nn.MSELoss()(out, y)`
            return [(self.module, node.func)]
        for variable in self._sources(self.module.variable(node.func)):
            for binding in variable.scope.module.bindings(variable):
                value = itself(binding.value, MOVES) if binding.value is not None else None
                if isinstance(value, ast.Call):
                    found.append((variable.scope.module, value))
        return found

    def _sources(self, variable: Variable | None) -> list[Variable]:
        if variable is None:
            return []
        found = [variable]
        for current in found:
            if current.scope.module.is_parameter(current) and len(found) < 10:
                for module, _, argument in given_by(self.roles.sites, current):
                    source = module.variable(argument) if argument is not None else None
                    if source is not None and source not in found:
                        found.append(source)
        return found


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
    summed = any(isinstance(node, ast.Attribute) and node.attr == "sum" for node in walk(function))
    means = any(isinstance(node, ast.Attribute) and node.attr == "mean" for node in walk(function))
    return bool(by_size) and not others and summed and not means


def unwrapped(node: ast.expr) -> ast.expr:
    """Without `.item()`, `float(...)` and the like around it."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _UNWRAPPED_METHODS:
            node = node.func.value
        elif (isinstance(node, ast.Attribute) and node.attr == "data") or _is_first_of_data(node):
            node = node.value  # type: ignore[attr-defined]
        elif is_call_of(node, "float", "int") and node.args:
            node = node.args[0]
        else:
            return node


def _is_first_of_data(node: ast.expr) -> bool:
    """`loss.data[0]`: the number of a loss, as it was asked for before there was `item`."""
    return isinstance(node, ast.Subscript) and is_zero(node.slice) and unparse(node.value).endswith(".data")


def _speaks_of_size(node: ast.expr) -> bool:
    text = unparse(node)
    return text.endswith((".size(0)", ".shape[0]")) or text.startswith("len(")


def sums(call: ast.Call) -> bool:
    """Whether a loss, or the criterion that is built here, is told to add up: by `reduction`, or as it was said before."""
    return any(
        (k.arg == "reduction" and isinstance(k.value, ast.Constant) and k.value.value == "sum")
        or (k.arg == "size_average" and is_falsy(k.value))
        for k in call.keywords
    ) and not any(k.arg == "reduce" for k in call.keywords)


def _reduces_nothing(module: Module, criterion: ast.Call) -> bool:
    owner, _, name = module.full_name(criterion.func).rpartition(".")
    said = [k.value.value for k in criterion.keywords if k.arg == "reduction" and isinstance(k.value, ast.Constant)]
    return owner.startswith("torch.nn") and name in _MEAN_CRITERIA and said == ["none"]


def shortened(node: ast.AST) -> str:
    text = unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _changes_mean(keyword: ast.keyword) -> bool:
    """Whether a keyword makes a loss something else than the plain mean; `reduction="mean"` does not."""
    if keyword.arg in ("reduction", "size_average", "reduce") and isinstance(keyword.value, ast.Constant):
        return keyword.value.value not in ("mean", True)
    return keyword.arg in _CHANGES_MEAN
