"""How a loss is reduced over its batch: from the backward pass back over names, calls and functions.

Silent where every loss is proven to be a mean over the samples of a batch: a loss of torch, or a mean, over rows that each
come of one sample by operations that are known to keep them apart. Any other is a sum, uneven, or not known. How long the
batches are that it is a mean over is another question.

Every expression has a kind. A scalar is a `mean`, a `sum`, a mean by an `uneven` count, one `weighted` by class, or `unknown`;
`rows` is a tensor that still has its samples, and `between` one of each row with each other; `free` what no sample has part in,
`unseen` what a call gives that cannot be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set

from accel_migrate.analysis.notes.settled import may_come_about
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import all_constructions, padding
from accel_migrate.analysis.values.entries import entries
from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.losses import (
    WORST,
    Reduced,
    criterion,
    either,
    is_loss,
    is_of_weights,
    parts_of,
    weight_of,
    worst,
)
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.unread import Unseen
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import (
    all_arguments,
    arguments_at,
    called_name,
    calls_method,
    is_call_of,
    is_none,
    parts_of_value,
    unparse,
    walk,
)
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable
from accel_migrate.flow.torch_api import itself

_OVER_ALL = ("norm", "dist", "max", "min", "amax", "amin", "prod", "median", "logsumexp", "std", "var")
# By each row alone; of a number they are not linear, so that the mean of what they give is not what they give of the mean.
_CURVED = (
    "abs", "clamp", "clamp_min", "clip", "cos", "exp", "log", "log1p", "log_softmax", "logsigmoid", "masked_fill", "maximum",
    "minimum", "pow", "relu", "sigmoid", "sin", "softmax", "softplus", "sqrt", "square", "tan", "tanh", "threshold",
)  # fmt: skip
_SAME = (
    *_CURVED, "argmax", "bool", "chunk", "clone", "contiguous", "cpu", "cuda", "detach", "div", "double", "eq", "expand",
    "expand_as", "flatten", "fliplr", "float", "gather", "ge", "gt", "half", "int", "item", "le", "long", "lt", "mul", "ne",
    "neg", "permute", "requires_grad_", "reshape", "split", "squeeze", "t", "to", "transpose", "type", "type_as", "unsqueeze",
    "values", "view", "view_as",
)  # fmt: skip
_BY_ROW = (
    *_SAME, "Variable", "add", "as_tensor", "cat", "column_stack", "concat", "cosine_similarity", "dropout", "hstack",
    "interpolate", "logical_and", "lgamma", "normalize", "one_hot", "pad", "pairwise_distance", "sign", "stack", "sub",
    "upsample", "vstack", "where",
)  # fmt: skip
_SAMPLES = Role.BATCH | Role.OUTPUT
_NAMED = (ast.Name, ast.Attribute, ast.Call)
_TURNING = ("transpose", "permute", "swapaxes", "swapdims")
_SIDES = ("cosine_similarity", "pairwise_distance")  # by the rows of both
_NUMBERS = ("math.", "numpy.", "random.", "time.", "pandas.", "sklearn.")
_MADE = re.compile(r"zeros|ones|full|empty|rand|arange|linspace|eye|tensor|\w*Tensor|from_numpy|normal(?!ize)|is_")
_DEPTH = 40
_LONGEST = 40  # characters of an expression that is named


def unseen_losses(script: Script, training: Training) -> Iterator[Unseen]:
    """The losses that are neither proven to be means over samples nor known to be something else."""
    for backward in training.backwards:
        found = reduced(script.graph, backward)
        if found.kind == "unknown":
            node = found.node if isinstance(found.node, ast.expr) else backward.loss
            owner = next((module for module in script.project.modules if node in module.parents), backward.module)
            name = f"{unparse(node.func)}()" if isinstance(node, ast.Call) else unparse(node)
            yield Unseen(owner, node, name if len(name) < _LONGEST else unparse(backward.loss))


def unseen_lengths(script: Script, training: Training) -> Iterator[Unseen]:
    """What makes the batches of a loss that is a mean over them, where they may differ in their length."""
    if not any(reduced(script.graph, backward).kind == "mean" for backward in training.backwards):
        return
    for loop in training.loops:
        if training.trains_on_share(loop):
            for owner, collate in padding(script.graph, loop.module, loop.loader):
                name = f"{unparse(collate)}()" if isinstance(collate, ast.Name | ast.Attribute) else "its collate_fn"
                yield Unseen(owner, collate or loop.statement, name)


def reduced(graph: CallGraph, backward: Backward) -> Reduced:
    """How the loss of a backward pass is reduced; a mean is one only where that is proven."""
    found = _searched(graph, backward)[0]
    if found.kind in ("rows", "free", "unseen"):
        return Reduced("unknown", found.node or backward.loss)
    return found


def pairs(graph: CallGraph, backward: Backward) -> Reduced | None:
    """The first pairs of samples that the loss of a backward pass comes from, whatever it is made of them."""
    return _searched(graph, backward)[1]


@once
def _searched(graph: CallGraph, backward: Backward) -> tuple[Reduced, Reduced | None]:
    search = _Search(graph)
    return search.kind(backward.module, backward.loss), search.pairs


def reduced_kind(graph: CallGraph, module: Module, node: ast.expr) -> str:
    """The kind of a figure: `sum` where it adds up samples, `mean`, `uneven` or `weighted` where it adds up batches."""
    return _Search(graph, {"mean", "uneven", "weighted"}).kind(module, node).kind


class _Search:
    def __init__(self, graph: CallGraph, per_row: Set[str] = frozenset({"mean"})) -> None:
        """`per_row` are the kinds that, times the rows of their batch, add up samples."""
        self.roles = graph.roles
        self.graph = graph
        self.per_row = per_row
        self.depth = 0
        self.known: dict[tuple[ast.AST, int], Reduced] = {}
        self.pairs: Reduced | None = None  # the first that were come by

    def kind(self, module: Module, node: ast.expr, index: int = 0) -> Reduced:
        """How an expression, or that entry of the tuple that it gives, is reduced."""
        if (node, index) not in self.known:
            self.known[node, index] = Reduced("free")  # what is built of itself adds nothing
            self.depth += 1
            found = self._kind(module, node, index) if self.depth < _DEPTH else Reduced("unseen", node)
            self.depth -= 1
            self.known[node, index] = found
        return self.known[node, index]

    def _kind(self, module: Module, node: ast.expr, index: int) -> Reduced:
        match node:
            case ast.Constant():
                return Reduced("free")
            case ast.BinOp():
                return self._operation(module, node.left, node.op, node.right, node)
            case ast.UnaryOp(operand=inner) | ast.NamedExpr(value=inner) | ast.Starred(value=inner):
                return self.kind(module, inner, index)
            case ast.IfExp(body=body, orelse=orelse):
                return either([self.kind(module, body, index), self.kind(module, orelse, index)])
            case ast.Call():
                return self._call(module, node, index)
            case ast.Name() | ast.Attribute():
                return self._read(module, node, index)
            case ast.Tuple(elts=parts) if index < len(parts):
                return self.kind(module, parts[index])
            case (
                ast.List()
                | ast.Set()
                | ast.Dict()
                | ast.BoolOp()
                | ast.ListComp()
                | ast.GeneratorExp()
                | ast.DictComp()
            ):
                return worst(self.kind(module, part) for part in parts_of_value(node))
            case ast.Subscript(value=inner, slice=key):
                index = key.value if isinstance(key, ast.Constant) and isinstance(key.value, int) else 0
                found = self.kind(module, inner, index)
                whole = found.kind == "free" and _place_of_one(node) is not None
                return Reduced("rows") if found.kind in ("unseen", "free") and not whole else found
        return Reduced("rows")

    # ---- operations

    def _operation(self, module: Module, left: ast.expr, op: ast.operator, right: ast.expr, node: ast.AST) -> Reduced:
        first, second = self.kind(module, left), self.kind(module, right)
        if self._is_spread(module, left, right):
            return self._between(module, (left, right), node)
        if isinstance(op, ast.Div | ast.FloorDiv):
            return self._divided(module, first, right, second, node)
        if isinstance(op, ast.Mult):
            for scalar, other in ((first, right), (second, left)):
                if scalar.kind in self.per_row and self._is_size(module, other):
                    return Reduced("sum", node)
            if {first.kind, second.kind} in ({"mean"}, {"mean", "unseen"}):
                return Reduced("unknown", node)
            return worst([first, second])
        if isinstance(op, ast.MatMult):
            return self._product(module, left, right, node)
        if isinstance(op, ast.Pow) and first.kind == "mean":
            return Reduced("unknown", node)
        return worst([first, second])

    def _product(self, module: Module, left: ast.expr, right: ast.expr, node: ast.AST, flat: bool = False) -> Reduced:
        """Rows by weights are rows, and rows by rows that are turned are pairs; those of a batch of matrices are not known."""
        bound = reaching(module, right)
        turned = (bound[0].whole or right) if len(bound) == 1 else right
        if _turns(module, turned, flat):
            return self._between(module, (left, right), node)
        kinds = [self.kind(module, side).kind for side in (left, right)]
        return Reduced("rows") if "free" in kinds else Reduced("unseen", node)

    def _between(self, module: Module, sides: Sequence[ast.expr], node: ast.AST, sure: bool = True) -> Reduced:
        """Each row of one side with each of the other; sure only where all of them are seen to be samples."""
        kinds = [self.kind(module, side).kind for side in sides]
        if set(kinds) != {"rows"}:
            return Reduced("rows") if "free" in kinds else Reduced("unseen", node)
        given = [any(self.roles.role(module, p) & _SAMPLES for p in module.walk(side, *_NAMED)) for side in sides]
        found = Reduced("between", node, sure and all(given))
        self.pairs = self.pairs or found
        return found

    def _is_spread(self, module: Module, *sides: ast.expr) -> bool:
        """`a.unsqueeze(1) - b.unsqueeze(0)`, `a[:, None] * b[None]`."""
        places = []
        for side in sides:
            bound = reaching(module, side)
            places.append(_place_of_one((bound[0].whole or side) if len(bound) == 1 else side))
        return set(places) == {0, 1}

    def _divided(self, module: Module, first: Reduced, by: ast.expr, second: Reduced, node: ast.AST) -> Reduced:
        if second.kind in ("sum", "uneven"):
            return Reduced("uneven", node)
        if "between" in (first.kind, second.kind):
            return worst([first, second])
        if first.kind == "sum" and not isinstance(by, ast.Constant):
            return Reduced("mean") if self._is_size(module, by) else Reduced("unknown", node)
        if first.kind == "mean" and second.kind in ("mean", "unseen") and not self._is_size(module, by):
            return Reduced("unknown", node)
        return second if first.kind == "free" or second.kind == "unseen" else first

    def _is_size(self, module: Module, node: ast.expr) -> bool:
        """The number of samples of the batch, by itself or under a name, or times what is the same for all batches."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = [node.left, node.right]
            sizes = [side for side in sides if self._is_size(module, side)]
            return len(sizes) == 1 and all(side in sizes or self.kind(module, side).kind == "free" for side in sides)
        if isinstance(node, ast.Name):
            bound = [b.value for b in reaching(module, node)]
            return bool(bound) and all(value is not None and self._is_size(module, value) for value in bound)
        text = unparse(node)
        return text.endswith((".size(0)", ".shape[0]", ".size()[0]", ".numel()")) or text.startswith("len(")

    # ---- names

    def _read(self, module: Module, node: ast.Name | ast.Attribute, index: int) -> Reduced:
        variable = module.variable(node)
        owner = variable.scope.module if variable is not None else module
        bindings = owner.bindings(variable)
        if variable is None or not bindings:
            if isinstance(node, ast.Name):
                return Reduced("free")
            told = self.kind(module, node.value)
            if told.kind == "free" or self.roles.role(module, node.value) & Role.MODEL:
                return Reduced("free")  # weights of a model, or of a layer of it
            if node.attr == "data":
                return told  # `loss.data`
            if node.attr == "loss" or ("loss" in node.attr.lower() and told.kind == "rows"):
                return Reduced("unknown", node)
            return told if told.kind in WORST[:5] else Reduced("rows")
        if self.roles.of(variable) & Role.BATCH:
            return Reduced("rows")
        if isinstance(node, ast.Name):
            bindings = _last(module, node, reaching(module, node) or bindings)  # `(h := model(x)) @ h.t()`
        found = [self._binding(owner, variable, binding, index) for binding in bindings]
        return worst([*found, *self._added(owner, variable)])

    def _binding(self, module: Module, variable: Variable, binding: Binding, index: int) -> Reduced:
        statement = binding.statement
        if binding.kind == "parameter":
            return self._passed(variable)
        if binding.kind == "augment" and isinstance(statement, ast.AugAssign):
            target = statement.target
            before = [b for b in module.bindings(variable) if b.kind == "assign"]
            if isinstance(target, ast.Name):
                before = _last(module, target, [b for b in reaching(module, target) if b is not binding])
            if (statement, index) in self.known:
                return self.known[statement, index]
            self.known[statement, index] = Reduced("free")  # of a round before
            first = worst(self._binding(module, variable, each, index) for each in before)
            second = self.kind(module, statement.value)
            if second.kind == "mean" and self._is_for_each_sample(module, statement):
                second = Reduced("sum", statement, sure=False)
            divides = isinstance(statement.op, ast.Div)
            self.known[statement, index] = (
                self._divided(module, first, statement.value, second, statement) if divides else worst([first, second])
            )
            return self.known[statement, index]
        if binding.value is None or binding.kind in ("import", "with"):
            return Reduced("rows" if binding.kind == "with" else "free")
        found = self.kind(module, binding.value, *(binding.path[:1] or (index,)))
        if binding.kind in ("for", "comprehension"):
            if is_of_weights(binding.value) or (found.kind == "free" and self._is_listed(module, binding.value)):
                return Reduced("free")
            return found if found.kind in ("mean", "between", *WORST[:3]) else Reduced("rows")
        return found

    def _is_listed(self, module: Module, node: ast.expr | None, depth: int = 0) -> bool:
        """Whether the script itself lists what a loop goes through, so that the parts are of the kind of the whole."""
        if isinstance(node, ast.List | ast.ListComp | ast.Dict | ast.DictComp):
            return True
        target = self.roles.target(module, node) if isinstance(node, ast.Call) else None
        if target is not None and depth < _DEPTH:
            return bool(target.returned) and all(self._is_listed(target.module, v, depth + 1) for v in target.returned)
        variable = module.variable(node) if node is not None else None
        if variable is None or depth == _DEPTH:
            return False
        owner = variable.scope.module
        values = [binding.value for binding in owner.bindings(variable)]
        return bool(values) and all(self._is_listed(owner, value, depth + 1) for value in values)

    def _passed(self, variable: Variable) -> Reduced:
        """What callers hand over for a parameter; a model's or a criterion's forward is handed samples."""
        if variable.name == variable.scope.self_name:
            return Reduced("free")
        if getattr(variable.scope.node, "name", "") in ("forward", "__call__"):
            return Reduced("rows")
        left = default_of(variable.scope.node, variable.name)  # what a call leaves out
        sites = [(caller, argument) for caller, _, argument in self.graph.given(variable)]
        values = [each if each[1] is not None else (variable.scope.module, left) for each in sites]
        given = [self.kind(caller, value) for caller, value in values if value is not None]
        return worst(given) if given else Reduced("rows")

    def _added(self, module: Module, variable: Variable) -> Iterator[Reduced]:
        """`losses.append(loss)`, `losses["image"] = loss`: what was put into a container comes out of it."""
        for name, call in module.method_calls.get(variable, ()):
            if name in ("append", "extend", "update", "insert") and call.args:
                found = self.kind(module, call.args[-1])
                by_sample = found.kind == "mean" and self._is_for_each_sample(module, call)
                yield Reduced("rows") if by_sample else found
        yield from (self.kind(module, value) for value in module.items_set.get(variable, ()))

    def _is_for_each_sample(self, module: Module, node: ast.AST) -> bool:
        """Whether the nearest loop goes through the samples of a batch, `for out, label in zip(outs, y)`, and runs no model."""
        loop = next((each for each in module.ancestors(node) if isinstance(each, ast.For | ast.While)), None)
        if not isinstance(loop, ast.For) or module.scope(loop) is not module.scope(node):
            return False
        nodes = [node for statement in loop.body for node in module.walk(statement, ast.Call, ast.Subscript)]
        if any(isinstance(each, ast.Call) and self.roles.role(module, each.func) & Role.MODEL for each in nodes):
            return False
        match loop.iter:
            case ast.Call(func=ast.Name(id="enumerate"), args=[ast.Call(func=ast.Name(id="zip"), args=read), *_]):
                pass
            case ast.Call(func=ast.Name(id="zip"), args=read):
                pass
            case ast.Call(func=ast.Name(id="range"), args=[size]) if self._is_size(module, size):
                at = unparse(loop.target)
                read = [each.value for each in nodes if isinstance(each, ast.Subscript) and unparse(each.slice) == at]
            case _:
                read = []
        return any(self.roles.role(module, each) & Role.BATCH for each in read)

    # ---- calls

    def _call(self, module: Module, node: ast.Call, index: int) -> Reduced:
        dotted = module.full_name(node.func)
        function = node.func
        torch = dotted.startswith("torch.")
        name = (dotted or unparse(function)).rpartition(".")[2]
        if torch and is_loss(name):
            return self._rated(module, self._weighed(module, criterion(name, node), weight_of(name, node)), node)
        if dotted.startswith(_NUMBERS):
            return worst(self.kind(module, argument) for argument in node.args)
        if (torch and node.args) or (isinstance(function, ast.Attribute) and not dotted):
            inner = node.args[0] if torch else function.value  # type: ignore[attr-defined]
            over = [*node.args[torch:], *[k.value for k in node.keywords if k.arg in ("dim", "axis")]]
            turns = _turns_rows(name, node.args[torch:], node.keywords)
            if name == "norm":  # `norm(2, dim=1)`: the first is its order
                over = over[1:] if node.args[torch:] else over
            if name in ("sum", "mean", "nanmean", *_OVER_ALL):
                return self._over(module, name, inner, over, node)
            if name in ("mm", "matmul") and len(node.args) > torch:
                return self._product(module, inner, node.args[torch], node, flat=name == "mm")
            if name in ("flip", "roll") and not turns:
                return self._between(module, (inner,), node, sure=False)  # time may come first
            if (name in _SAME or name.endswith("_") or turns) and not torch:
                found = self.kind(module, inner, index)
                return Reduced("unknown", node) if found.kind in ("mean", "sum") and name in _CURVED else found
            if name in ("diag", "diagonal") and self.kind(module, inner).kind == "between":
                return self.kind(module, inner)
        if dotted == "torch.nn.Parameter":
            return Reduced("free")
        if torch:
            return self._of_torch(module, name, node)
        if isinstance(function, ast.Name) and module.variable(function) is None and not dotted and node.args:
            if name == "sum":
                return self._summed(module, node.args[0], node)
            if name == "len":
                return Reduced("free")
            if name == "map" and isinstance(node.args[0], ast.Lambda):
                return worst(self.kind(module, part) for part in (node.args[0].body, *node.args[1:]))
            if name in ("float", "max", "min", "abs", "list", "tuple"):
                return worst(self.kind(module, argument) for argument in node.args)
        target = self.roles.target(module, node)
        if target is not None:
            return self._returned(target, index, module, node)
        return self._made(module, node, index)

    def _of_torch(self, module: Module, name: str, node: ast.Call) -> Reduced:
        """What a function of torch gives: a row for each sample only where it is known to keep them apart."""
        found = worst(self.kind(module, argument) for argument in node.args)
        if name == "grad" and self._is_of_samples(module, node):
            return Reduced("rows")
        if (
            found.kind in ("mean", "sum") and name in _CURVED
        ):  # of a sum: as in log(sum(exp(x))), which adds up no samples
            return Reduced("unknown", node)
        if found.kind == "free" or _MADE.match(name):
            return Reduced("free")
        pairs = name in ("cdist", "pdist") or (name in _SIDES and self._is_spread(module, *node.args[:2]))
        if pairs:
            return self._between(module, node.args[: 1 if name == "pdist" else 2], node, sure=name != "cdist")
        by_row = name in _BY_ROW or _turns_rows(name, node.args[1:], node.keywords)
        return found if by_row or found.kind in WORST[:5] else Reduced("unseen", node)

    def _is_of_samples(self, module: Module, node: ast.Call) -> bool:
        """`grad(net(x).sum(), x)`: by samples, not by weights; the sum is what lets each sample have the gradient of its own."""
        taken = worst(self.kind(module, each) for each in arguments_at(node, 0, "outputs"))
        by = [self.kind(module, each).kind for each in arguments_at(node, 1, "inputs")]
        return taken.kind in ("rows", "sum") and by == ["rows"]

    def _weighed(self, module: Module, found: Reduced, weight: ast.expr | None) -> Reduced:
        """A mean by class, where there are weights: those that are None, or may be, make it the plain mean, or may."""
        if found.kind != "weighted" or weight is None:
            return found
        bound = reaching(module, weight) if isinstance(weight, ast.Name) else []
        values = [b.value for b in bound] or [weight]
        parts = [part for value in values for part in (parts_of(value) if value is not None else [value])]
        if all(is_none(part) for part in parts):
            return Reduced("mean")
        made = all(isinstance(part, ast.Call) and self.roles.target(module, part) is None for part in parts)
        return found._replace(sure=made)

    def _rated(self, module: Module, found: Reduced, node: ast.Call) -> Reduced:
        """A loss of torch over what it is given: a mean over samples where that has a row for each of them."""
        given = all_arguments(node)
        picked = [one for each in given if (one := self._picked(module, each)) is not None]
        picked = [one for one in picked if not self._is_made_once(module, one) and not _counts_out(module, one.slice)]
        keys = [unparse(one.slice) for one in picked]
        for one in picked if found.kind == "mean" else ():
            # Of labels a table is asked by one side alone; what both sides are asked by picks rows.
            both = keys.count(unparse(one.slice)) > 1 and self._given(module, one.slice).kind == "rows"
            both = both and not self._is_for_each_sample(module, one)
            if both or self._is_mask(module, one.slice):
                return Reduced("uneven", one)
        kinds = [self._given(module, each) for each in given]
        between = [each for each in kinds if each.kind == "between"]
        unclear = [each for each in kinds if each.kind == "unseen"]
        if between and found.kind in ("mean", "rows"):
            return between[0]
        return Reduced("unknown", unclear[0].node) if unclear and found.kind == "mean" else found

    def _given(self, module: Module, node: ast.expr) -> Reduced:
        """What a loss is given; what a model gives for a batch has a row for each sample."""
        found = self.kind(module, node)
        rows = found.kind != "between" and self.roles.role(module, node) & _SAMPLES
        return Reduced("rows") if rows else found

    def _over(self, module: Module, name: str, inner: ast.expr, over: list[ast.expr], node: ast.Call) -> Reduced:
        """A reduction over everything, or over the dimensions that it names."""
        if is_of_weights(inner) or self._loops_over_weights(module, inner):
            return Reduced("free")
        first = [isinstance(d, ast.Constant) and d.value == 0 for d in over]
        found = self.kind(module, inner)
        if over and (not any(first) or name in _OVER_ALL):
            return found
        if name == "sum":
            return Reduced("unknown", node) if over and found.kind == "rows" else self._summed(module, inner, node)
        if name in ("mean", "nanmean"):
            chosen = self._chosen(module, inner)
            if chosen is not None:
                return Reduced("uneven", chosen)
            if found.kind == "unseen" and not self.roles.role(module, inner) & _SAMPLES:
                return Reduced("unknown", found.node)
            return found if found.kind in WORST[:5] else Reduced("mean")
        return found if found.kind not in ("rows", "unseen") else Reduced("unknown", node)

    def _summed(self, module: Module, inner: ast.expr, node: ast.Call) -> Reduced:
        """What the sum of a value is: of a loss that is a number already it is that number."""
        found = self.kind(module, inner)
        if found.kind in ("rows", "unseen") and self._adds_terms(module, inner):
            return Reduced("unknown", node)
        if found.kind == "unseen":
            called = found.node.func if isinstance(found.node, ast.Call) else None
            return Reduced("unknown" if isinstance(called, ast.Name) else "sum", node)
        # Python's own may add the entries of a tuple that a model gives.
        entries = isinstance(node.func, ast.Name) and self.roles.role(module, inner) & Role.OUTPUT
        return Reduced("sum", node, sure=not entries) if found.kind in ("rows", "between") else found

    def _adds_terms(self, module: Module, node: ast.expr) -> bool:
        """Whether the values of a mapping are added up: terms of a loss, each under its name, and not samples."""
        bound = reaching(module, node) if isinstance(node, ast.Name) else []
        for part in (part for value in (node, *[b.value for b in bound]) if value is not None for part in walk(value)):
            match part:
                case ast.Call(func=ast.Attribute(attr="values" | "items" | "keys"), args=[]):
                    return True
                case ast.comprehension(target=ast.Name(id=key), iter=ast.Name(id=mapping)):
                    if any(unparse(each) == f"{mapping}[{key}]" for each in module.walk(module.parents[part])):
                        return True
        return False

    def _made(self, module: Module, node: ast.Call, index: int) -> Reduced:
        """What an object gives when it is called, by how it was built."""
        values = self._built(module, node.func)
        found = [self._object(owner, value, node, index) for owner, value in values]
        if found:
            is_model = self.roles.role(module, node.func) & Role.MODEL
            one = either(found)
            return Reduced("rows") if one.kind == "unseen" and is_model else self._rated(module, one, node)
        of_loss = self.roles.role(module, node.func) & Role.CRITERION or "loss" in unparse(node.func).lower()
        if not of_loss and self.roles.role(module, node.func) & Role.MODEL:
            return Reduced("rows")
        return Reduced("unknown" if of_loss else "unseen", node)

    def _built(self, module: Module, called: ast.expr, depth: int = 0) -> list[tuple[Module, ast.expr]]:
        """How what is called was built, or the function that it is; of those kept in a list or a dictionary, each."""
        called = itself(called)
        if isinstance(called, ast.Call | ast.Lambda) or module.qualified(called) is not None:
            return [(module, called)]
        if self.roles.project.definition(module, called) is not None:
            return [(module, called)]
        if isinstance(called, ast.Subscript) and isinstance(called.slice, ast.Constant) and depth < 4:
            under_key = entries(self.roles, module, called.value, called.slice.value)
            if under_key:
                return [found for owner, value in under_key for found in self._built(owner, value, depth + 1)]
        variable = module.variable(called.value if isinstance(called, ast.Subscript) else called)
        made: list[tuple[Module, ast.expr]] = []
        for link in chain(self.graph, variable) if variable is not None and depth < 4 else ():
            owner = link.scope.module
            here = isinstance(called, ast.Name) and link == variable
            bound = reaching(module, called) if here else owner.bindings(link)
            values = [(owner, b.value, b.path if b.kind == "assign" else ()) for b in bound if b.value is not None]
            values += [(caller, argument, ()) for caller, argument in self.graph.handed(link)]
            for file, value, path in values:  # `model, criterion = build()`
                made += all_constructions(self.roles, self.graph, file, value, path) or [(file, value)]
        parts = [(owner, part) for owner, value in made for part in parts_of(value)]
        return [found for owner, part in parts for found in self._built(owner, part, depth + 1)]

    def _object(self, module: Module, made: ast.expr, node: ast.Call, index: int) -> Reduced:
        """What calling an object gives: a criterion of torch, a module of the project, a function under another name."""
        if isinstance(made, ast.Lambda):
            return self.kind(module, made.body, index)
        function = self.roles.project.definition(module, made)
        if function is not None:
            return self._returned(function, index, module, node)
        if not isinstance(made, ast.Call):
            dotted = module.full_name(made)
            name = dotted.rpartition(".")[2]
            if dotted.startswith("torch.") and _MADE.match(name):
                return Reduced("free")  # `FloatTensor = torch.cuda.FloatTensor`
            return criterion(name, node) if is_loss(name) else Reduced("unseen", node)
        dotted = module.full_name(made.func)
        name = dotted.rpartition(".")[2]
        if dotted == "functools.partial" and made.args:
            name = module.full_name(made.args[0]).rpartition(".")[2]
        if (dotted.startswith("torch.") or dotted == "functools.partial") and is_loss(name):
            return self._weighed(module, criterion(name, made), weight_of(name, made))
        target = self.roles.target(module, made)
        if target is not None and isinstance(target.node, ast.ClassDef):
            forward = self.roles.project.method(target, "forward") or self.roles.project.method(target, "__call__")
            if forward is None:
                return Reduced("unseen", node)
            return self._returned(forward, index, module, node)
        if dotted.startswith("torch.nn."):
            return Reduced("rows")
        return Reduced("unknown" if "loss" in unparse(made.func).lower() else "unseen", node)

    def _returned(self, target: Definition, index: int, module: Module, node: ast.Call) -> Reduced:
        """What a function gives where it is called so."""
        if isinstance(target.node, ast.ClassDef):
            return Reduced("rows")
        found = []
        for value in target.returned:
            if not may_come_about(self.graph, target.module, value, {target.node: [(module, node)]}):
                continue
            parts = value.elts if isinstance(value, ast.Tuple) else []
            found.append(self.kind(target.module, parts[index] if index < len(parts) else value, index))
        return either(found)

    # ---- weights and masks

    def _loops_over_weights(self, module: Module, node: ast.expr) -> bool:
        """`p.norm()` of `for p in model.parameters()`."""
        for inner in walk(node):
            variable = module.variable(inner) if isinstance(inner, ast.Name) else None
            for binding in variable.scope.bindings.get(variable.name, []) if variable is not None else []:
                if binding.kind in ("for", "comprehension") and binding.value is not None:
                    if is_of_weights(binding.value):
                        return True
        return False

    def _chosen(self, module: Module, node: ast.expr) -> ast.expr | None:
        """`losses.masked_select(mask)`, by itself or under a name: as many items as the batch happens to hold."""
        for value in _under_names(module, node):
            masked = isinstance(value, ast.Subscript) and self._is_mask(module, value.slice)
            if masked or calls_method(value, "masked_select"):
                return value
            for given in all_arguments(value) if isinstance(value, ast.Call) else ():
                picked = self._picked(module, given)  # `bce(out[mask], y[mask])` gives one item for each
                if picked is not None and self._is_mask(module, picked.slice):
                    return picked
        return None

    def _picked(self, module: Module, node: ast.expr, depth: int = 0) -> ast.Subscript | None:
        """`out[mask]`, by itself, under a name, or behind what works by rows: `F.log_softmax(out[mask], 1)`."""
        match node:
            case ast.Subscript(slice=ast.Name() | ast.Attribute() | ast.Compare() | ast.UnaryOp(op=ast.Invert())):
                return node
            case ast.Call() if node.args and module.full_name(node.func).rpartition(".")[2] in _BY_ROW:
                return self._picked(module, node.args[0], depth + 1) if depth < _DEPTH else None
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _BY_ROW:
                return self._picked(module, inner, depth + 1) if depth < _DEPTH else None
            case ast.Name() if depth < _DEPTH:
                for bound in reaching(module, node):
                    value = bound.value
                    found = self._picked(module, value, depth + 1) if value is not None else None
                    if found is not None:
                        return found
        return None

    def _is_made_once(self, module: Module, picked: ast.Subscript) -> bool:
        """Whether a loop picks the same rows in each of its rounds: `out[train]`, where `train` is bound above it."""
        key = picked.slice
        bound = reaching(module, key) if isinstance(key, ast.Name) else []
        loop = next((each for each in module.ancestors(picked) if isinstance(each, ast.For | ast.While)), None)
        function = module.scope(picked).function
        return (
            loop is not None
            and module.scope(loop).function is function
            and bool(bound)
            and all(
                b.kind == "assign"
                and module.scope(b.statement).function is function
                and not module.holds(loop, b.statement)
                for b in bound
            )
        )

    def _is_mask(self, module: Module, key: ast.expr) -> bool:
        return any(isinstance(v, ast.Compare) or "mask" in getattr(v, "id", "") for v in _under_names(module, key))


def _under_names(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """A value with all that it stands for, where it is a name."""

    def held(each: ast.expr) -> list[ast.expr]:
        bound = reaching(module, each) if isinstance(each, ast.Name) else []
        return [binding.value for binding in bound if binding.value is not None]

    return closure([node], held)


def _last(module: Module, node: ast.Name, bindings: list[Binding]) -> list[Binding]:
    """Without what `loss /= n` has changed by the time a name is read."""
    here = module.statement(node)
    around = (here, *module.ancestors(here))
    for binding in bindings:  # the nearest comes first
        if binding.kind == "augment" and any(item in around for item in module.block(binding.statement)):
            return [binding]
    return bindings


def _counts_out(module: Module, key: ast.expr) -> bool:
    """Whether an index picks places by their numbers alone, as many of each batch: `[i for i in range(0, len(x), 5)]`."""
    bound = [b.value for b in reaching(module, key)] if isinstance(key, ast.Name) else []
    lists = [value for value in bound if isinstance(value, ast.ListComp) and len(value.generators) == 1]
    loops = [value.generators[0] for value in lists]
    return bool(bound) and len(loops) == len(bound) and all(is_call_of(g.iter, "range") and not g.ifs for g in loops)


def _turns(module: Module, node: ast.expr, flat: bool) -> bool:
    """`b.t()`, `b.T`, `b.transpose(0, 1)`; of matrices that are `flat` the last two dimensions are all."""
    if isinstance(node, ast.Attribute):
        return node.attr == "T" or (flat and node.attr == "mT")
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    dims = {unparse(dim) for dim in node.args[bool(module.full_name(node.func)) :]}
    return name == "t" or (name in _TURNING and (dims == {"0", "1"} or (flat and dims == {"-1", "-2"})))


def _place_of_one(node: ast.expr) -> int | None:
    """Where a dimension of one is put in."""
    match node:
        case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[ast.Constant(value=int(place))]):
            return place
        case ast.Subscript(slice=ast.Constant(value=None) | ast.Tuple(elts=[ast.Constant(value=None), *_])):
            return 0
        case ast.Subscript(slice=ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None), *_])):
            return 1
    return None


def _turns_rows(name: str, given: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """`flip(x, [1])`, `roll(x, 1, dims=2)`: within each sample, and not from one to another."""
    if name not in ("flip", "roll"):
        return False
    over = [*given[name == "roll" :], *[keyword.value for keyword in keywords if keyword.arg == "dims"]]
    places = [p for each in over for p in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])]
    places = [p.operand if isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.USub) else p for p in places]
    return bool(places) and all(isinstance(p, ast.Constant) and isinstance(p.value, int) and p.value for p in places)
