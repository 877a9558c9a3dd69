"""Which parts of a module a value is computed with so that gradients come back to them: backwards over forward."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.program.scopes import Function, Module, Variable
from accel_migrate.flow.nodes import children

NO_GRADIENT = {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"}
# What an attribute or a method gives has no gradient: another tensor without one, numbers, sizes.
_CUTS = {
    "data", "detach", "detach_", "item", "numpy", "tolist", "argmax", "argmin", "argsort", "long", "int", "bool", "byte",
    "shape", "size", "dim", "ndim", "device", "dtype", "numel", "requires_grad", "is_cuda",
}  # fmt: skip


class GradientPaths:
    """Backwards from values of a class's methods to the reads of its own parts."""

    def __init__(self, module: Module, owner: ast.ClassDef) -> None:
        self._module = module
        self._owner = owner
        self._methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}

    def to(self, values: Iterable[ast.AST]) -> set[ast.AST]:
        """The nodes that values may be computed from, with a gradient; what is not certain counts as such."""
        found: set[ast.AST] = set()
        pending = list(values)
        while pending:
            node = pending.pop()
            if node in found or self._is_cut(node):
                continue
            found.add(node)
            pending += children(node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                pending += self._values(node)
            elif isinstance(node, ast.Attribute) and self._is_own(node):
                pending += self._of_self(node)
        return found

    def results(self, method: Function) -> list[ast.AST]:
        """What a method gives its caller, and what else may get out of it: kept in the object, or handed to something."""
        found: list[ast.AST] = []
        for node in self._module.walk(method):
            if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
                found.append(node.value)
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found += [node.value for target in targets if not self._is_local(method, target)]
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                owner = node.value.func.value if isinstance(node.value.func, ast.Attribute) else node.value.func
                found += [] if self._is_local(method, owner) else [node.value]
        return found

    def _is_cut(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in _CUTS:
            return True
        if isinstance(node, ast.Call):
            name = self._module.qualified(node.func) or ""
            return name.startswith("torch.") and name.rpartition(".")[2] in _CUTS
        return isinstance(node, ast.expr) and is_without_gradient(self._module, node)

    def _is_own(self, node: ast.Attribute) -> bool:
        variable = self._module.variable(node)
        return variable is not None and variable.scope.node is self._owner and variable.name.startswith("self.")

    def _is_local(self, method: Function, target: ast.AST) -> bool:
        """Whether a target is, or is a part of, a variable that the method makes: it is looked at where that is read."""
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        return all(self._is_made_in(method, part) for part in parts)

    def _is_made_in(self, method: Function, target: ast.AST) -> bool:
        while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
            target = target.value
        variable = self._module.variable(target)
        return variable is not None and any(
            binding.kind != "parameter" and self._module.holds(method, binding.statement)
            for binding in self._module.bindings(variable)
        )

    def _values(self, name: ast.Name) -> Iterator[ast.AST]:
        """What a variable is set to, in whole or in part, and what it is handed by calls of its methods."""
        module = self._module
        variable = module.variable(name)
        if variable is None or variable.scope.is_class or variable.scope.node is module.tree:
            return
        for binding in module.bindings(variable):
            if binding.kind != "parameter":
                yield binding.value if binding.value is not None else binding.statement
        for node in module.walk(variable.scope.node):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(self._has_root(part, variable) for target in targets for part in _flat(target)):
                    yield node.value
            elif isinstance(node, ast.Call) and self._is_told(node, variable):
                yield from (*node.args, *node.keywords)

    def _has_root(self, target: ast.AST, variable: Variable) -> bool:
        while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
            target = target.value
        return self._module.variable(target) == variable

    def _is_told(self, call: ast.Call, variable: Variable) -> bool:
        """`parts.append(x)`, and `fill(parts, x)` for its own sake."""
        if isinstance(call.func, ast.Attribute) and self._has_root(call.func.value, variable):
            return True
        for_its_own_sake = isinstance(self._module.parents[call], ast.Expr)
        return for_its_own_sake and any(self._has_root(argument, variable) for argument in call.args)

    def _of_self(self, node: ast.Attribute) -> Iterator[ast.AST]:
        """What one of the object's methods gives, or what its methods keep under a name."""
        method = self._methods.get(node.attr)
        if method is not None:
            yield from self.results(method)
        variable = self._module.variable(node)
        for binding in self._module.bindings(variable) if variable is not None else ():
            function = self._module.scope(binding.statement).function
            if binding.value is not None and getattr(function, "name", "__init__") != "__init__":
                yield binding.value


def _flat(target: ast.AST) -> list[ast.AST]:
    return (
        [part for each in target.elts for part in _flat(each)] if isinstance(target, ast.Tuple | ast.List) else [target]
    )


def is_without_gradient(module: Module, node: ast.AST) -> bool:
    """Whether torch records nothing for a node, by a `with` around it or a decorator of its function."""
    function = module.scope(node).function
    around = [parent for parent in module.ancestors(node) if isinstance(parent, ast.With)]
    stops = [item.context_expr for parent in around for item in parent.items]
    stops += function.decorator_list if function is not None else []
    return any(module.qualified(each.func if isinstance(each, ast.Call) else each) in NO_GRADIENT for each in stops)
