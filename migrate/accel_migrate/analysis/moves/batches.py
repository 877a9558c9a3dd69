"""Which values come out of which loader: a move of such a value is the prepared loader's business."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import CallGraph, iterated_loader, numbers_batches
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import arguments_at, calls_method, is_call_of, parts_of_value
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.tensor_types import is_cpu_type, stays_on_cpu
from accel_migrate.flow.torch_api import is_reshaping

_LEAVES_DEVICE = {"cpu", "numpy", "tolist", "item"}


def casts_to_cpu(module: Module, call: ast.Call) -> bool:
    """`x.type(torch.LongTensor)`, also by a name or a text: the type names the CPU."""
    if not calls_method(call, "type") or module.qualified(call.func) is not None:
        return False
    return any(_is_cpu_type(module, kind) for kind in arguments_at(call, 0, "dtype"))


def _is_cpu_type(module: Module, kind: ast.expr) -> bool:
    if isinstance(kind, ast.Constant):
        return is_cpu_type(kind.value)
    values = [b.value for b in module.bindings_of(kind) if b.kind == "assign" and b.value is not None]
    return stays_on_cpu(module.qualified(value) for value in (kind, *values))


@dataclass(eq=False)
class Batches:
    """Follows a value back to the loaders it was read from, through names, parts, methods and calls."""

    roles: Roles
    graph: CallGraph
    # Whether what is read there is a loader that nobody asks about.
    is_another: Callable[[Module, ast.expr], bool] = lambda module, node: False

    def loaders(self, module: Module, node: ast.expr, depth: int = 0) -> set[Variable] | None:
        """The loaders a value may come from; None if it may come from anything else as well."""
        if depth > 12:
            return None
        if isinstance(node, ast.Name):
            return self._name(module, node, depth)
        if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
            if isinstance(node, ast.Attribute) and module.variable(node) in module.attribute_bindings:
                return None
            return self.loaders(module, node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._call(module, node, depth)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and len(node.generators) > 1:
            return None
        if isinstance(node, ast.Tuple | ast.List | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.IfExp):
            return _all(self.loaders(module, part, depth + 1) for part in parts_of_value(node))
        return None

    def _call(self, module: Module, node: ast.Call, depth: int) -> set[Variable] | None:
        function = node.func
        dotted = module.full_name(function)
        if (dotted == "torch.autograd.Variable" or is_reshaping(dotted)) and node.args:
            return self.loaders(module, node.args[0], depth + 1)
        if isinstance(function, ast.Name) and function.id in ("next", "iter") and node.args:
            loader = iterated_loader(self.roles, module, node.args[0])
            return self._read(module, loader) if loader is not None else None
        if isinstance(function, ast.Name) and function.id in ("list", "tuple", "dict", "map") and node.args:
            return self.loaders(module, node.args[-1], depth + 1)
        if isinstance(function, ast.Attribute) and module.qualified(function) is None:
            if function.attr in _LEAVES_DEVICE or casts_to_cpu(module, node):
                return None
            if function.attr == "type_as" and node.args and self.loaders(module, node.args[0], depth + 1) is None:
                return None
            return self.loaders(module, function.value, depth + 1)
        return None

    def _read(self, module: Module, loader: ast.expr) -> set[Variable] | None:
        variable = module.variable(loader)
        return {variable} if variable is not None and not self.is_another(module, loader) else None

    def _name(self, module: Module, node: ast.Name, depth: int) -> set[Variable] | None:
        variable = module.variable(node)
        if variable is None:
            return None
        sources: list[set[Variable] | None] = []
        for binding in reaching(module, node):
            if binding.kind == "parameter":
                sources.append(self._parameter(variable, depth))
            elif binding.kind in ("for", "comprehension") and binding.value is not None:
                sources.append(self._looped(module, binding.value, binding.path, depth))
            elif binding.kind == "assign" and binding.value is not None:
                sources.append(self.loaders(module, binding.value, depth + 1))
            else:
                return None
        return _all(sources)

    def _looped(self, module: Module, iterated: ast.expr, path: tuple[int, ...], depth: int) -> set[Variable] | None:
        loader = iterated_loader(self.roles, module, iterated)
        if loader is not None:
            return self._read(module, loader) if not numbers_batches(iterated, path) else None
        if is_call_of(iterated, "zip", "enumerate"):
            if iterated.func.id == "zip" and path and path[0] < len(iterated.args):
                return self._looped(module, iterated.args[path[0]], path[1:], depth)
            if iterated.func.id == "enumerate" and path[:1] == (1,) and iterated.args:
                return self._looped(module, iterated.args[0], path[1:], depth)
            return None
        if calls_method(iterated, "items", "values"):
            if iterated.func.attr == "items" and path[:1] == (0,):
                return None
            return self.loaders(module, iterated.func.value, depth + 1)
        return self.loaders(module, iterated, depth + 1)

    def _parameter(self, variable: Variable, depth: int) -> set[Variable] | None:
        found: list[set[Variable] | None] = []
        for caller, _, passed in self.graph.given(variable):
            if passed is None:
                return None
            found.append(self.loaders(caller, passed, depth + 1))
        return _all(found) if found else None


def _all(sources: Iterable[set[Variable] | None]) -> set[Variable] | None:
    joined: set[Variable] = set()
    for source in sources:
        if source is None:
            return None
        joined |= source
    return joined or None
