"""AM802: a loss that is not a plain mean over samples weighs differently once gradients are averaged over processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.reaching import reaching
from accel_migrate.analysis.program.scopes import Module
from accel_migrate.analysis.values.itself import itself
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM802"
_SUM = (
    "the loss is summed over the batch ({line}), and gradients are averaged over processes: a step is as large as with "
    "one process's batch; for the sum over all of them multiply the loss by accelerator.num_processes"
)
_UNEVEN = (
    "the loss is a mean over as many items as the batch happens to hold ({line}), and every process weighs the same in "
    "the average; for the mean over all items divide the sum by accelerator.reduce(count) / accelerator.num_processes"
)
_UNKNOWN = (
    "whether the loss is a mean over the batch or a sum is not visible to the analysis ({line}), and gradients are averaged over "
    "processes: that is right for a mean; a sum is to be multiplied by accelerator.num_processes"
)
_WEIGHTED = (
    "the loss is a mean weighted by class ({line}): each process divides by the weights of its own batch, and every process "
    "weighs the same in the average"
)
_TOLD = {"sum": _SUM, "uneven": _UNEVEN, "weighted": _WEIGHTED, "unknown": _UNKNOWN}
_WEIGHS = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")  # their mean is over the sum of the weights


def find(context: Context) -> Iterator[Change]:
    for backward in context.training.backwards:
        if backward.module is context.module:
            kind, node = _Search(context).kind(context.module, backward.loss, 0)
            if kind and node is not None:
                owner = next((m for m in context.script.project.modules if node in m.parents), context.module)
                where = "line" if owner is context.module else f"{owner.source.path.name}, line"
                message = _TOLD[kind].format(line=f"{where} {getattr(node, 'lineno', 0)}")
                yield change(CODE, backward.call, message, loop=context.training.index, safety=Safety.NOTE)
                return


class _Search:
    """Follows a loss back to how it was reduced."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.seen: set[ast.AST] = set()

    def kind(self, module: Module, node: ast.expr, depth: int, index: int = 0) -> tuple[str, ast.AST | None]:
        """How an expression, or that entry of the tuple that it gives, was reduced."""
        if node in self.seen or depth > 12:
            return "", None
        self.seen.add(node)
        if isinstance(node, ast.BinOp):
            return self._operation(module, node, depth)
        if isinstance(node, ast.UnaryOp):
            return self.kind(module, node.operand, depth + 1)
        if isinstance(node, ast.Call):
            return self._call(module, node, depth, index)
        if isinstance(node, ast.Name):
            variable = module.variable(node)
            for binding in reaching(module, node, variable) if variable is not None else ():
                if binding.kind == "assign" and binding.value is not None:
                    found = self.kind(module, binding.value, depth + 1, *binding.path[:1])
                    if found[0]:
                        return found
        return "", None

    def _operation(self, module: Module, node: ast.BinOp, depth: int) -> tuple[str, ast.AST | None]:
        if isinstance(node.op, ast.Div):
            if ".sum(" in unparse(node.right):
                return "uneven", node
            found = self.kind(module, node.left, depth + 1)
            if found[0] != "sum" or isinstance(node.right, ast.Constant):
                return found
            return ("", None) if _is_size(module, node.right) else ("unknown", node)
        for side in (node.left, node.right):
            found = self.kind(module, side, depth + 1)
            if found[0]:
                return found
        return "", None

    def _call(self, module: Module, node: ast.Call, depth: int, index: int = 0) -> tuple[str, ast.AST | None]:
        dotted = module.qualified(node.func) or ""
        function = node.func
        if dotted == "torch.sum" and len(node.args) == 1:
            return self._summed(module, node.args[0], node)
        if isinstance(function, ast.Attribute) and not dotted:
            if function.attr == "sum" and not node.args and not node.keywords:
                return self._summed(module, function.value, node)
            if function.attr in ("float", "to", "squeeze"):
                return self.kind(module, function.value, depth + 1)
            if function.attr == "mean":
                chosen = _chosen(module, function.value)
                return ("uneven", chosen) if chosen is not None else ("", None)
        for call in (node, *self._built(module, node)):
            for keyword in call.keywords:
                if keyword.arg == "reduction" and unparse(keyword.value) == "'sum'":
                    return "sum", call
                if keyword.arg == "size_average" and unparse(keyword.value) == "False":
                    return "sum", call
                if keyword.arg == "ignore_index":
                    return "uneven", call
                if keyword.arg == "weight" and unparse(call.func).rpartition(".")[2] in _WEIGHS:
                    return "weighted", call
        return self._returned(module, node, depth, index)

    def _summed(self, module: Module, value: ast.expr, node: ast.Call) -> tuple[str, ast.AST | None]:
        """What `value.sum()` is: of a loss that is a number already it is that number."""
        if isinstance(value, ast.Name):
            variable = module.variable(value)
            bound = [b.value for b in reaching(module, value, variable)] if variable is not None else []
            if len(bound) == 1 and isinstance(bound[0], ast.Call):
                value = bound[0]
        if not isinstance(value, ast.Call):
            return "sum", node
        losses = [call for call in (value, *self._built(module, value)) if _is_loss(call)]
        if any(
            k.arg in ("reduction", "reduce") and "none" in unparse(k.value).lower() for c in losses for k in c.keywords
        ):
            return "sum", node
        if any(k.arg == "reduce" and unparse(k.value) == "False" for call in losses for k in call.keywords):
            return "sum", node
        if losses:
            return self._call(module, value, 0)  # one number, whatever it is
        of_loss = self.context.script.roles.role(module, value.func) & Role.CRITERION
        unseen = isinstance(value.func, ast.Name) and self.context.script.roles.target(module, value) is None
        known = module.qualified(value.func) is not None and (module.qualified(value.func) or "").startswith("torch.")
        return ("unknown", node) if of_loss or (unseen and not known) else ("sum", node)

    def _built(self, module: Module, node: ast.Call) -> list[ast.Call]:
        """How the criterion that is called was built."""
        variable = module.variable(node.func)
        if variable is None:
            return []
        links = chain(self.context.script.roles, self.context.script.graph, variable)
        bound = [b.value for link in links for b in link.scope.module.bindings(link)]
        return [made for value in bound if value is not None and isinstance(made := itself(value), ast.Call)]

    def _returned(self, module: Module, node: ast.Call, depth: int, index: int) -> tuple[str, ast.AST | None]:
        for target in self._targets(module, node):
            for inner in walk(target.node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    parts = inner.value.elts if isinstance(inner.value, ast.Tuple) else []
                    value = parts[index] if index < len(parts) else inner.value
                    found = self.kind(target.module, value, depth + 1)
                    if found[0]:
                        return found
        return "", None

    def _targets(self, module: Module, node: ast.Call) -> Iterator[Definition]:
        """The function that is called; of a loss that is a module of the project, its forward."""
        roles = self.context.script.roles
        target = roles.target(module, node)
        if target is not None and not isinstance(target.node, ast.ClassDef):
            yield target
        for built in self._built(module, node):
            owner = next((m for m in roles.project.modules if built in m.parents), module)
            made = roles.target(owner, built)
            forward = roles.project.method(made, "forward") if made is not None and _is_class(made) else None
            if forward is not None:
                yield forward


def _is_class(definition: Definition) -> bool:
    return isinstance(definition.node, ast.ClassDef)


def _chosen(module: Module, node: ast.expr) -> ast.expr | None:
    """`losses.masked_select(mask)`, by itself or under a name: as many items as the batch happens to hold."""
    if isinstance(node, ast.Name):
        variable = module.variable(node)
        bound = [b.value for b in reaching(module, node, variable)] if variable is not None else []
        return next((found for v in bound if v is not None and (found := _chosen(module, v)) is not None), None)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "masked_select"
    by_mask = isinstance(node, ast.Subscript) and (
        isinstance(node.slice, ast.Compare) or (isinstance(node.slice, ast.Name) and "mask" in node.slice.id)
    )
    return node if is_call or by_mask else None


def _is_loss(call: ast.Call) -> bool:
    """A loss of torch, as a class or as a function."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name.endswith(("Loss", "_loss")) or "cross_entropy" in name


def _is_size(module: Module, node: ast.expr) -> bool:
    """The number of samples of the batch, by itself or under a name."""
    if isinstance(node, ast.Name):
        variable = module.variable(node)
        bound = [b.value for b in reaching(module, node, variable)] if variable is not None else []
        return bool(bound) and all(value is not None and _is_size(module, value) for value in bound)
    text = unparse(node)
    return text.endswith((".size(0)", ".shape[0]", ".size()[0]")) or text.startswith("len(")


RULE = Rule(
    code=CODE,
    name="summed_loss",
    summary="a loss that is summed, or averaged by a count that differs from batch to batch",
    why="Averaging gradients over processes gives the gradient of the mean over all samples when each loss is a mean over as "
    "many samples. A sum is N times smaller than the sum over all, and a mean over tokens or a mask weighs each process "
    "alike, however many it had.",
    example_before='loss = F.mse_loss(output, target, reduction="sum")',
    example_after='loss = F.mse_loss(output, target, reduction="sum")',
    find=find,
    safety=Safety.NOTE,
)
