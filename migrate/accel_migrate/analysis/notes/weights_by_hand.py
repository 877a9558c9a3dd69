"""Where a script takes numbers of a model's weights by itself, or mixes them with those of a model that stays whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.made_of import without_wrapper
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import is_call_of
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Binding, Module

_YIELD = ("parameters", "named_parameters")
_LAYERS = ("children", "named_children", "modules", "named_modules")
_NAMED = ("weight", "bias")
_LOGS = re.compile("add_[a-z]")
_NUMBERS = ("numpy", "tolist", "item")
_HAND_ON = ("zip", "enumerate", "next", "list", "tuple", "iter", "filter", "sorted")


@once
def weights_by_hand(script: Script, training: Training, module: Module, with_gradients: bool = False) -> list[ast.Call]:
    """The calls, in the order of the file; those before `prepare` meet whole weights. Of gradients another rule speaks."""
    weights = _Weights(script, training, module, with_gradients)
    found = (c for c in module.calls if weights.are_read(c) or weights.are_mixed(c) or weights.are_logged(c))
    return [call for call in found if training.timing.after_prepare(module, call)]


class _Weights:
    def __init__(self, script: Script, training: Training, module: Module, with_gradients: bool) -> None:
        self.script, self.training, self.module = script, training, module
        self.with_gradients = with_gradients

    def are_read(self, call: ast.Call) -> bool:
        """`weight.detach().cpu().numpy()`, `float(weight.norm())`."""
        function = call.func
        if _is_named(function, "float"):
            return any(map(self._comes_from_one, call.args))
        return _attribute(function) in _NUMBERS and self._comes_from_one(function)

    def are_logged(self, call: ast.Call) -> bool:
        """`writer.add_histogram(name, weight, epoch)`: it takes their numbers, perhaps on one process alone."""
        return bool(_LOGS.match(_attribute(call.func) or "")) and any(map(self._comes_from_one, call.args))

    def _comes_from_one(self, node: ast.expr) -> bool:
        parts = [node, *_below(node)]
        of_gradient = any(_attribute(part) == "grad" for part in parts)
        return any(map(self._is_one, parts)) and (self.with_gradients or not of_gradient)

    def are_mixed(self, call: ast.Call) -> bool:
        """`zip(model.parameters(), average.parameters())` of one model that is prepared and one that is not."""
        if not is_call_of(call, "zip"):
            return False
        yields = [part for part in call.args if isinstance(part, ast.Call) and _attribute(part.func) in _YIELD]
        return {self._is_prepared(part.func.value) for part in yields} == {True, False}  # type: ignore[attr-defined]

    def _is_one(self, node: ast.expr, depth: int = 0) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in _NAMED:
            return any(map(self._is_prepared, _below(node)))
        if isinstance(node, ast.Call):
            return (_is_named(node.func, "next") and self._yields(node)) or self._gives_one(node)
        return depth < 2 and (
            any(self._is_bound(binding, depth + 1) for binding in self._bound(node)) or self._is_handed_one(node, depth)
        )

    def _gives_one(self, call: ast.Call) -> bool:
        """`model.rows()` of a model whose method gives back `self.table.weight`."""
        function = call.func
        if not isinstance(function, ast.Attribute) or not any(map(self._is_prepared, _below(function))):
            return False
        method = self.script.roles.forward_of(self.module, without_wrapper(function.value), function.attr)
        given = method.returned if method is not None else []
        return any(_attribute(part) in _NAMED for value in given for part in (value, *_below(value)))

    def _is_handed_one(self, node: ast.expr, depth: int) -> bool:
        """Whether a parameter is a weight in one of the calls of its function."""
        variable = self.module.variable(node) if isinstance(node, ast.Name) else None
        if variable is None or not self.module.is_parameter(variable):
            return False
        given = [(caller, passed) for caller, _, passed in self.script.graph.given(variable) if passed is not None]
        return any(
            _Weights(self.script, self.training, caller, self.with_gradients)._is_one(part, depth + 1)
            for caller, passed in given
            for part in (passed, *_below(passed))
        )

    def _bound(self, node: ast.expr) -> list[Binding]:
        """What a name is set to or goes through; another loop may use the same name for something else."""
        bindings = self.module.bindings_of(node) if isinstance(node, ast.Name) else []
        kinds = ("assign", "comprehension")
        return [b for b in bindings if b.kind in kinds or (b.kind == "for" and self.module.holds(b.statement, node))]

    def _is_bound(self, binding: Binding, depth: int) -> bool:
        if binding.value is None or binding.kind == "assign":
            return binding.value is not None and self._is_one(binding.value, depth)
        parts = [binding.value, *_below(binding.value)]
        return self._yields(binding.value) or any(self._is_one(part, depth) for part in parts)

    def _yields(self, node: ast.expr) -> bool:
        """Whether an expression goes through weights of a prepared model, as `enumerate(model.parameters())` does."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _YIELD:
            return any(map(self._is_prepared, _below(node.func)))
        return any(_is_named(node.func, name) for name in _HAND_ON) and any(map(self._yields, node.args))

    def _is_prepared(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether it is a prepared model, or one of its layers: `list(model.children())[-1]`, `for layer in model.modules()`."""
        variable = self.module.variable(node)
        if variable in self.training.storage.models and self.script.roles.of(variable) & Role.MODEL:
            return True
        return depth < 2 and any(
            _attribute(part.func) in _LAYERS and self._is_prepared(part.func.value, depth + 1)  # type: ignore[attr-defined]
            for binding in self._bound(node)
            if binding.value is not None
            for part in self.module.walk(binding.value, ast.Call)
        )


def _below(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression is asked of, outermost first: of `a.b(c)[0].d` these are `a.b(c)[0]`, `a.b(c)`, `a.b` and `a`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
        yield node


def _attribute(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
