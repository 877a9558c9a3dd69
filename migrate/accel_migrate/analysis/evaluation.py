"""Evaluation loops: can the figure be made from gathered rows, or must every process see all of the data?

A figure is exact on N processes when each step of the loop adds up something over samples (counts, summed losses, a
mean times the number of its samples) or collects rows. Then gathering right after the forward gives the original's
figure. Anything else, above all a mean of batch means, depends on how samples are grouped: that loader stays whole.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.loops import LoaderLoop
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable


@dataclass(frozen=True, eq=False)
class Gather:
    """Gather `names` right after `after`; each of `sizes` speaks of a local batch and becomes one of gathered rows."""

    loop: LoaderLoop
    after: ast.stmt
    names: tuple[str, ...]
    sizes: tuple[tuple[ast.expr, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Whole:
    """The loader is not shared out: every process evaluates everything, for the reason given."""

    loop: LoaderLoop
    reason: str
    line: int


class _NotExact(Exception):
    def __init__(self, reason: str, node: ast.AST) -> None:
        super().__init__(reason)
        self.line = getattr(node, "lineno", 1)


_MEAN_LOSSES = {
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}  # fmt: skip
_UNWRAPPED_METHODS = {"item", "cpu", "detach", "numpy", "float", "double", "long", "int", "tolist"}


def judge(roles: Roles, loop: LoaderLoop) -> Gather | Whole:
    """How one evaluation loop is made right on N processes."""
    try:
        return _Judge(roles, loop).gather()
    except _NotExact as reason:
        return Whole(loop, str(reason), reason.line)


class _Judge:
    def __init__(self, roles: Roles, loop: LoaderLoop) -> None:
        self.roles = roles
        self.loop = loop
        self.module: Module = loop.module
        self.assigned: dict[str, ast.expr] = {}

    def gather(self) -> Gather:
        loop = self.loop.statement
        if loop.orelse:
            raise _NotExact("the loop has an `else`", loop)
        forward, rest = self._split(loop.body)
        output = forward.targets[0]
        assert isinstance(output, ast.Name)
        local = self._local_names(forward)
        counter = self._counter()
        names = [output.id]
        sizes: list[tuple[ast.expr, str]] = []
        for statement in rest:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    if node.id == counter:
                        raise _NotExact("the loop's counter takes part in it", node)
                    if node.id in local:
                        size = self._size_expression(node)
                        if size is not None:
                            sizes.append((size, node.id))
                        elif node.id not in names:
                            self._whole_rows(node)
                            names.append(node.id)
        if len(names) < 2:
            raise _NotExact("nothing of the batch is compared with the model's output", loop)
        for statement in rest:
            self._allowed(statement)
        self._no_length_of_loader()
        row = next(name for name in names if name != output.id)
        fixed = tuple((size, row) for size, name in sizes if name not in names)
        return Gather(self.loop, forward, tuple(names), fixed)

    def _split(self, body: list[ast.stmt]) -> tuple[ast.Assign, list[ast.stmt]]:
        """The forward, and what comes after it in the same block or, when it stands in a `with`, after that."""
        for index, statement in enumerate(body):
            if isinstance(statement, ast.With) and self._calls_model(statement):
                forward, rest = self._split(statement.body)
                return forward, [*rest, *body[index + 1 :]]
            if self._calls_model(statement):
                if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                    raise _NotExact("the model's output is used without a name of its own", statement)
                if not isinstance(statement.targets[0], ast.Name):
                    raise _NotExact("the model returns several values", statement)
                rest = body[index + 1 :]
                if any(self._calls_model(later) for later in rest):
                    raise _NotExact("the model is called more than once in the loop", statement)
                return statement, rest
            if not isinstance(statement, ast.Assign | ast.Expr | ast.AugAssign | ast.AnnAssign | ast.If | ast.For):
                raise _NotExact("the loop does more than evaluate", statement)
        raise _NotExact("the model is not called in the loop itself", self.loop.statement)

    def _calls_model(self, statement: ast.stmt) -> bool:
        return any(
            isinstance(node, ast.Call)
            and (
                self.roles.role(self.module, node.func) & Role.MODEL
                or (isinstance(node.func, ast.Attribute) and self.roles.role(self.module, node.func.value) & Role.MODEL)
            )
            for node in ast.walk(statement)
        )

    def _counter(self) -> str | None:
        target = self.loop.statement.target
        text = ast.unparse(self.loop.statement.iter)
        if "enumerate(" in text and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
            return target.elts[0].id
        return None

    def _local_names(self, forward: ast.stmt) -> set[str]:
        names = {node.id for node in ast.walk(self.loop.statement.target) if isinstance(node, ast.Name)}
        for node in ast.walk(self.loop.statement):
            if isinstance(node, ast.Assign) and node.lineno < forward.lineno:
                names |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        counter = self._counter()
        return names - ({counter} if counter else set())

    def _whole_rows(self, node: ast.Name) -> None:
        """A batch that is a dictionary or list cannot be gathered under its name alone."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.Subscript | ast.Starred) and parent.value is node:
            raise _NotExact(f"`{node.id}` is taken apart after the forward", node)
        variable = self.module.variable(node)
        if not self.roles.of(variable) & Role.BATCH:
            raise _NotExact(f"`{node.id}` is not known to hold one row for each sample", node)

    def _size_expression(self, node: ast.Name) -> ast.expr | None:
        """`x.size(0)`, `x.shape[0]` or `len(x)` around a name."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
            return parent
        if isinstance(parent, ast.Attribute):
            outer = self.module.parents[parent]
            if parent.attr == "size" and isinstance(outer, ast.Call) and len(outer.args) == 1:
                return outer if _is_zero(outer.args[0]) else None
            if parent.attr == "shape" and isinstance(outer, ast.Subscript):
                return outer if _is_zero(outer.slice) else None
        return None

    def _allowed(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        self.assigned[name.id] = statement.value
                    elif isinstance(name, ast.Subscript | ast.Attribute):
                        raise _NotExact("results are stored by position", statement)
            return
        if isinstance(statement, ast.AugAssign):
            if not isinstance(statement.op, ast.Add):
                raise _NotExact("the figure is not a sum", statement)
            self._additive(statement.value)
            return
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            if isinstance(function, ast.Attribute) and function.attr in ("append", "extend"):
                if isinstance(function.value, ast.Name):
                    self._rows(statement.value.args[0] if statement.value.args else statement.value)
                    return
        if isinstance(statement, ast.If) and all(isinstance(s, ast.Break | ast.Pass) for s in statement.body):
            if not statement.orelse and "loss" not in ast.unparse(statement.test):
                return
        if isinstance(statement, ast.With):
            for inner in statement.body:
                self._allowed(inner)
            return
        raise _NotExact("the loop does more than add up its figures", statement)

    def _rows(self, node: ast.expr) -> None:
        """What is collected must be rows of the gathered tensors, not one figure for the batch."""
        text = ast.unparse(node)
        if any(word in text for word in ("loss", ".mean(", "acc", "item()")):
            raise _NotExact("a figure of each batch is collected", node)

    def _additive(self, node: ast.expr, depth: int = 0) -> None:
        node = _unwrapped(node)
        if isinstance(node, ast.Name) and node.id in self.assigned and depth < 4:
            self._additive(self.assigned[node.id], depth + 1)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            self._additive(node.left, depth)
            self._additive(node.right, depth)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for mean, count in ((node.left, node.right), (node.right, node.left)):
                if self._is_size(count) and self._is_mean_loss(mean, depth):
                    return
            raise _NotExact("a product that is not a batch mean times its number of samples is added up", node)
        if self._is_size(node) or self._is_sum(node):
            return
        raise _NotExact("a mean of batch means depends on how samples are grouped", node)

    def _is_size(self, node: ast.expr) -> bool:
        node = _unwrapped(node)
        if isinstance(node, ast.Name) and node.id in self.assigned:
            node = _unwrapped(self.assigned[node.id])
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "len":
                return True
            if isinstance(node.func, ast.Attribute):
                return (node.func.attr == "size" and len(node.args) == 1 and _is_zero(node.args[0])) or (
                    node.func.attr == "numel"
                )
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "shape"
            and _is_zero(node.slice)
        )

    def _is_sum(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sum":
            return True
        if any(
            k.arg == "reduction" and isinstance(k.value, ast.Constant) and k.value.value == "sum" for k in node.keywords
        ):
            return True
        built = self._criterion_call(node)
        return built is not None and any(
            k.arg == "reduction" and isinstance(k.value, ast.Constant) and k.value.value == "sum"
            for k in built.keywords
        )

    def _is_mean_loss(self, node: ast.expr, depth: int) -> bool:
        node = _unwrapped(node)
        if isinstance(node, ast.Name) and node.id in self.assigned and depth < 4:
            return self._is_mean_loss(self.assigned[node.id], depth + 1)
        if not isinstance(node, ast.Call):
            return False
        built = self._criterion_call(node)
        plain = {"weight", "ignore_index", "reduction", "size_average", "reduce"}
        if built is not None:
            return not built.args and not any(k.arg in plain or k.arg is None for k in built.keywords)
        dotted = self.module.qualified(node.func) or ""
        if dotted.startswith("torch.nn.functional.") and dotted.rpartition(".")[2] in _MEAN_LOSSES:
            return len(node.args) <= 2 and not any(k.arg in plain for k in node.keywords)
        return False

    def _criterion_call(self, node: ast.Call) -> ast.Call | None:
        """How the criterion that is called here was built, followed through parameters."""
        if not self.roles.role(self.module, node.func) & Role.CRITERION:
            return None
        for variable in self._sources(self.module.variable(node.func)):
            for binding in variable.scope.module.bindings(variable):
                value = binding.value
                while (
                    isinstance(value, ast.Call)
                    and isinstance(value.func, ast.Attribute)
                    and value.func.attr in ("to", "cuda")
                ):
                    value = value.func.value
                if isinstance(value, ast.Call):
                    return value
        return None

    def _sources(self, variable: Variable | None) -> list[Variable]:
        if variable is None:
            return []
        found = [variable]
        for current in found:
            if any(b.kind == "parameter" for b in current.scope.module.bindings(current)) and len(found) < 10:
                for module in self.roles.project.modules:
                    for call in module.calls:
                        target = self.roles.target(module, call)
                        if target is not None and target.node is current.scope.node:
                            from accel_migrate.analysis.roles import arguments_of

                            passed = dict(arguments_of(call, target))
                            source = module.variable(passed[current.name]) if current.name in passed else None
                            if source is not None and source not in found:
                                found.append(source)
        return found

    def _no_length_of_loader(self) -> None:
        """`len(loader)` counts this process's batches after prepare, so a figure over it would change."""
        loader = ast.unparse(self.loop.loader)
        function = self.loop.function
        statements = function.body if function is not None else self.module.block(self.loop.statement)
        for statement in statements:
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "len"
                    and len(node.args) == 1
                    and ast.unparse(node.args[0]) == loader
                ):
                    raise _NotExact("a figure is divided by the number of batches", node)


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _unwrapped(node: ast.expr) -> ast.expr:
    """Without `.item()`, `float(...)` and the like around it."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _UNWRAPPED_METHODS:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("float", "int")
            and node.args
        ):
            node = node.args[0]
        else:
            return node
