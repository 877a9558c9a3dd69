"""AM802: a loss that is not a plain mean over samples weighs differently once gradients are averaged over processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.batches import reaching
from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.scopes import Module
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM802"
_SUM = (
    "the loss is summed over the batch (line {line}), and gradients are averaged over processes: a step is as large as with "
    "one process's batch; for the sum over all of them multiply the loss by accelerator.num_processes"
)
_UNEVEN = (
    "the loss is a mean over as many items as the batch happens to hold (line {line}), and every process weighs the same in "
    "the average; for the mean over all items divide the sum by accelerator.reduce(count) / accelerator.num_processes"
)


def find(context: Context) -> Iterator[Change]:
    for backward in context.training.backwards:
        if backward.module is context.module:
            kind, node = _Search(context).kind(context.module, backward.loss, 0)
            if kind and node is not None:
                message = (_SUM if kind == "sum" else _UNEVEN).format(line=getattr(node, "lineno", 0))
                yield change(CODE, backward.call, message, loop=context.training.index, safety=Safety.NOTE)
                return


class _Search:
    """Follows a loss back to how it was reduced."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.seen: set[ast.AST] = set()

    def kind(self, module: Module, node: ast.expr, depth: int) -> tuple[str, ast.AST | None]:
        if node in self.seen or depth > 12:
            return "", None
        self.seen.add(node)
        if isinstance(node, ast.BinOp):
            return self._operation(module, node, depth)
        if isinstance(node, ast.UnaryOp):
            return self.kind(module, node.operand, depth + 1)
        if isinstance(node, ast.Call):
            return self._call(module, node, depth)
        if isinstance(node, ast.Name):
            variable = module.variable(node)
            for binding in reaching(module, node, variable) if variable is not None else ():
                if binding.kind == "assign" and binding.value is not None:
                    found = self.kind(module, binding.value, depth + 1)
                    if found[0]:
                        return found
        return "", None

    def _operation(self, module: Module, node: ast.BinOp, depth: int) -> tuple[str, ast.AST | None]:
        if isinstance(node.op, ast.Div):
            divisor = ast.unparse(node.right)
            if ".sum(" in divisor:
                return "uneven", node
            constant = isinstance(node.right, ast.Constant) or "accum" in divisor
            return self.kind(module, node.left, depth + 1) if constant else ("", None)
        for side in (node.left, node.right):
            found = self.kind(module, side, depth + 1)
            if found[0]:
                return found
        return "", None

    def _call(self, module: Module, node: ast.Call, depth: int) -> tuple[str, ast.AST | None]:
        dotted = module.qualified(node.func) or ""
        function = node.func
        if dotted == "torch.sum" and len(node.args) == 1:
            return "sum", node
        if isinstance(function, ast.Attribute) and not dotted:
            if function.attr == "sum" and not node.args and not node.keywords:
                return "sum", node
            if function.attr in ("float", "to", "squeeze"):
                return self.kind(module, function.value, depth + 1)
            if function.attr == "mean":
                return "", None
        for call in (node, *self._built(module, node)):
            for keyword in call.keywords:
                if keyword.arg == "reduction" and ast.unparse(keyword.value) == "'sum'":
                    return "sum", call
                if keyword.arg == "size_average" and ast.unparse(keyword.value) == "False":
                    return "sum", call
                if keyword.arg == "ignore_index":
                    return "uneven", call
        return self._returned(module, node, depth)

    def _built(self, module: Module, node: ast.Call) -> list[ast.Call]:
        """How the criterion that is called was built."""
        variable = module.variable(node.func)
        if variable is None:
            return []
        links = chain(self.context.script.roles, self.context.script.graph, variable)
        return [b.value for link in links for b in link.scope.module.bindings(link) if isinstance(b.value, ast.Call)]

    def _returned(self, module: Module, node: ast.Call, depth: int) -> tuple[str, ast.AST | None]:
        target = self.context.script.roles.target(module, node)
        if target is None or isinstance(target.node, ast.ClassDef):
            return "", None
        for inner in ast.walk(target.node):
            if isinstance(inner, ast.Return) and inner.value is not None:
                value = inner.value.elts[0] if isinstance(inner.value, ast.Tuple) and inner.value.elts else inner.value
                found = self.kind(target.module, value, depth + 1)
                if found[0]:
                    return found
        return "", None


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
