"""Which kind of figure a value is: one number, made of the loss, a number of Python's, or a tensor.

Asked of figures that are this process's own, back to where they were made: over sums, callers and returned values.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import called_name, calls_method, is_call_of, parts_of_value, picked
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable

_NUMBERS = {"item", "float", "mean", "sum", "fsum", "average", "nanmean", "max", "min", "round", "exp", "log", "sqrt"}
_MEANS = {"float", "mean", "fsum", "average", "nanmean", "exp", "log", "sqrt"}
_SAME_KIND = {"item", "detach", "cpu", "clone", "numpy", "sum", "max", "min", "abs", "round"}
_PYTHONS = {"item", "float", "fsum"}
_LEAVES_TORCH = {"item", "tolist", "numpy", "size", "numel", "dim"}


class FigureKinds:
    def __init__(self, roles: Roles, local: Locality) -> None:
        self.roles = roles
        self.local = local

    def is_number(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is one number that was made of losses or outputs, such as can be averaged over processes."""
        if depth > 8:
            return False
        if isinstance(node, ast.BinOp):
            return all(
                isinstance(part, ast.Constant)
                or not self.local.is_local(module, part)
                or self.is_number(module, part, depth + 1)
                for part in (node.left, node.right)
            )
        if isinstance(node, ast.Call):
            return self._gives_number(module, node, depth)
        if isinstance(node, ast.Subscript | ast.Attribute):  # an entry of what is kept of each batch, or of a meter
            root: ast.expr = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            variable = module.variable(root)
            handed = self.local.graph.handed(variable) if variable is not None else ()
            return any(self.local.given_to(owner, kept) for owner, kept in ((module, root), *handed))
        if not isinstance(node, ast.Name):
            return False
        found, variable = False, module.variable(node)
        for binding in reaching(module, node):
            if binding.target in self.local.loss_names:
                found = True
            elif binding.kind in ("augment", "parameter"):
                given = self._given_by(module, binding, variable)
                if not all(self.is_number(owner, value, depth + 1) for owner, value in given):
                    return False
                found = True
            elif binding.kind != "assign" or binding.value is None:
                return False
            elif self.local.is_local(module, binding.value):
                if not self.is_number(module, binding.value, depth + 1):
                    return False
                found = True
        return found

    def _given_by(self, module: Module, binding: Binding, variable: Variable | None) -> list[tuple[Module, ast.expr]]:
        """What of this process's own a sum is given, or callers hand over."""
        if isinstance(binding.statement, ast.AugAssign):
            values = [(module, binding.statement.value)]
        elif binding.kind == "parameter" and variable is not None:
            values = self.local.graph.handed(variable)
        else:
            values = [(module, binding.value)] if binding.value is not None else []
        return [(owner, value) for owner, value in values if self.local.is_local(owner, value)]

    def is_of_loss(
        self, module: Module, node: ast.expr, or_mean: bool = False, depth: int = 0, path: tuple[int, ...] = ()
    ) -> bool:
        """Whether a value is the loss or made of it; with `or_mean` also another float, which counts nothing."""
        if depth > 8:
            return False
        node = picked(node, path)
        match node:
            case ast.BinOp():
                if or_mean and isinstance(node.op, ast.Div):
                    return True
                own = [part for part in (node.left, node.right) if self.local.is_local(module, part)]
                made = [self.is_of_loss(module, part, or_mean, depth + 1) for part in own]
                return any(made) if or_mean else bool(made) and all(made)
            case ast.UnaryOp() | ast.GeneratorExp() | ast.ListComp():
                return self.is_of_loss(module, parts_of_value(node)[0], or_mean, depth + 1)
            case ast.Call():
                return self._call_of_loss(module, node, or_mean, depth, path)
        variable = module.variable(node)
        if variable is None:
            return False
        held = [b for b in reaching(module, node) if b.target not in self.local.loss_names]
        sources = [(owner, value, b.path) for b in held for owner, value in self._given_by(module, b, variable)]
        sources += [(module, part, ()) for part in self.local.given_to(module, node)]
        return (bool(sources) or len(held) < len(reaching(module, node))) and all(
            self.is_of_loss(owner, value, or_mean, depth + 1, picked) for owner, value, picked in sources
        )

    def _call_of_loss(self, module: Module, node: ast.Call, or_mean: bool, depth: int, path: tuple[int, ...]) -> bool:
        name = called_name(node)
        if self.roles.role(module, node.func) & Role.CRITERION:
            return True
        dotted = module.full_name(node.func)
        if dotted.startswith("torch.nn.functional.") and name.endswith(("loss", "entropy", "div")):
            return True
        target = self.roles.function(module, node)
        if target is not None:
            made = [value for value in target.returned if self.local.is_local(target.module, value)]
            return bool(made) and all(self.is_of_loss(target.module, value, or_mean, depth + 1, path) for value in made)
        if or_mean and name in _MEANS:
            return True
        if name not in _SAME_KIND | _MEANS:
            return False
        method = isinstance(node.func, ast.Attribute) and not dotted
        inner = [node.func.value] if method and isinstance(node.func, ast.Attribute) else node.args[:1]
        return bool(inner) and all(self.is_of_loss(module, part, or_mean, depth + 1) for part in inner)

    def is_plain(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a figure is known to be a number of Python's and not a tensor."""
        if depth > 8 or not self.local.is_local(module, node):
            return depth <= 8 and not self.holds_tensor(module, node)
        if isinstance(node, ast.BinOp | ast.Tuple):
            return all(self.is_plain(module, part, depth + 1) for part in parts_of_value(node))
        if isinstance(node, ast.Call):
            if called_name(node) in _PYTHONS:
                return True
            target = self.roles.function(module, node)
            if target is not None:
                return all(self.is_plain(target.module, value, depth + 1) for value in target.returned)
            return is_call_of(node, "sum", "max", "min") and all(
                self.is_plain(module, part, depth + 1) for part in node.args
            )
        if not isinstance(node, ast.Name):
            return False
        for binding in reaching(module, node):
            if binding.target in self.local.loss_names:
                return False  # what a backward pass starts from is a tensor, whoever made it
            if binding.kind == "parameter":
                handed = self.local.graph.handed(module.variable(node))
                if not handed or not all(self.is_plain(owner, value, depth + 1) for owner, value in handed):
                    return False
                continue
            made = binding.statement.value if isinstance(binding.statement, ast.AugAssign) else binding.value
            if made is None or not self.is_plain(module, made, depth + 1):
                return False
        return all(self.is_plain(module, given, depth + 1) for given in self.local.given_to(module, node))

    def _gives_number(self, module: Module, node: ast.Call, depth: int) -> bool:
        if called_name(node) in _NUMBERS:
            method = isinstance(node.func, ast.Attribute) and module.qualified(node.func) is None
            by_row = any(keyword.arg in ("dim", "axis") for keyword in node.keywords)
            return not by_row and (len(node.args) <= (0 if method else 1) or isinstance(node.func, ast.Name))
        target = self.roles.function(module, node)
        if target is None:
            return False
        parts = [part for r in target.returned for part in (r.elts if isinstance(r, ast.Tuple) else [r])]
        local = [part for part in parts if self.local.is_local(target.module, part)]
        return bool(local) and all(self.is_number(target.module, part, depth + 1) for part in local)

    def comes_from_tensor(self, module: Module, figure: ast.expr) -> bool:
        """`loss.item()`, and not that of an object of the author's own."""
        if not isinstance(figure, ast.Call) or not calls_method(figure, "item"):
            return False
        return self.holds_tensor(module, figure.func.value)

    def holds_tensor(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is known to be a tensor: the loss, what a model, a criterion or torch gives, or made of these."""
        if depth > 8:
            return False
        if isinstance(node, ast.BinOp | ast.Compare):
            sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
            return any(self.holds_tensor(module, side, depth + 1) for side in sides)
        if isinstance(node, ast.Call):
            if module.full_name(node.func).startswith("torch."):
                return True
            if self.roles.role(module, node.func) & (Role.MODEL | Role.CRITERION):
                return True
            method = node.func if isinstance(node.func, ast.Attribute) else None
            return (
                method is not None
                and method.attr not in _LEAVES_TORCH
                and self.holds_tensor(module, method.value, depth + 1)
            )
        variable = module.variable(node) if isinstance(node, ast.Name) else None
        if variable is None:
            return False
        if self.roles.of(variable) & (Role.OUTPUT | Role.BATCH):
            return True
        made = [b for b in reaching(module, node) if not isinstance(b.value, ast.Constant)]
        handed = self.local.graph.handed(variable) if any(b.kind == "parameter" for b in made) else []
        return bool(made) and all(
            self._binds_tensor(module, binding, depth)
            if binding.kind != "parameter"
            else handed and all(self.holds_tensor(owner, value, depth + 1) for owner, value in handed)
            for binding in made
        )

    def _binds_tensor(self, module: Module, binding: Binding, depth: int) -> bool:
        value = binding.statement.value if isinstance(binding.statement, ast.AugAssign) else binding.whole
        if value is None:
            return False
        ended = isinstance(value, ast.Call) and called_name(value) in _LEAVES_TORCH
        return not ended and (binding.target in self.local.loss_names or self.holds_tensor(module, value, depth + 1))

    def is_tensor(self, module: Module, figure: ast.expr) -> bool:
        """Whether a figure is the tensor that is trained on, and not a number made of it."""
        if not isinstance(figure, ast.Name):
            return False
        bound = reaching(module, figure)
        # loss = loss.item()
        made = any(isinstance(b.value, ast.Call) and called_name(b.value) in _PYTHONS for b in bound)
        return not made and any(
            b.target in self.local.loss_names or (b.kind == "parameter" and self.holds_tensor(module, figure))
            for b in bound
        )
