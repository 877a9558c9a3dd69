"""An expression of one place, written as another place must write it: where the Accelerator is made, above all."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import default_of
from accel_migrate.flow.scopes import Binding, Module, Scope, Variable
from accel_migrate.flow.sequence import comes_first

_DEPTH = 8  # of names that stand for others


@dataclass(eq=False)
class Respelling:
    """Carries expressions to `anchor`: what is bound before it keeps its name, parameters become what callers pass."""

    graph: CallGraph
    module: Module
    anchor: ast.stmt
    ignored: set[ast.stmt]  # bindings that only say the same again, for each process
    replaced: ast.stmt | None = None  # a statement that is not there any more: what it binds gives way to its value

    def __post_init__(self) -> None:
        self.inlined = False  # whether a name of the anchor's own scope gave way to its value
        self.switch: ast.expr | None = None  # a name that gave way to a number or a text that people change
        self.visible: list[Scope] = []
        scope: Scope | None = self.module.scope(self.anchor)
        self.owner = scope.owner_class if scope is not None else None
        while scope is not None:
            self.visible.append(scope)
            scope = scope.parent

    def carried(self, module: Module, node: ast.expr, depth: int = 0) -> ast.expr | None:
        """The expression as the anchor would write it; None if its value cannot be had there."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Name | ast.Attribute):
            variable = module.variable(node)
            of_self = variable is not None and variable.name.startswith("self.")
            if variable is not None and (
                isinstance(node, ast.Name) or (of_self and variable.scope.module.bindings(variable))
            ):
                return self._variable(module, node, variable, depth)
        if isinstance(node, ast.Name):
            return node if self._is_same_import(module, node.id) else None
        if isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp | ast.NamedExpr):
            return None
        fields: dict[str, Any] = {}  # of a node of its own: what is known of the old one does not go along
        for name, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            carried = []
            for part in parts:
                if isinstance(part, ast.keyword):
                    inner = self.carried(module, part.value, depth)
                    part = ast.keyword(part.arg, inner) if inner is not None else None
                elif isinstance(part, ast.expr):
                    part = self.carried(module, part, depth)
                if part is None and name in ("keywords", "args", "elts", "values", "keys", "comparators"):
                    return None
                carried.append(part)
            if isinstance(value, list):
                fields[name] = carried
            elif isinstance(value, ast.expr):
                if carried[0] is None:
                    return None
                fields[name] = carried[0]
            else:
                fields[name] = value
        return ast.copy_location(type(node)(**fields), node)

    def _is_same_import(self, module: Module, name: str) -> bool:
        """A builtin, or a name that both files import from the same place."""
        return module is self.module or module.imports.get(name) == self.module.imports.get(name)

    def _variable(self, module: Module, node: ast.expr, variable: Variable, depth: int) -> ast.expr | None:
        owner = variable.scope.module
        bindings = [b for b in owner.bindings(variable) if b.statement not in self.ignored]
        kinds = {binding.kind for binding in bindings}
        if kinds == {"import"}:
            return node if self._is_same_import(module, variable.name) else None
        seen = variable.scope in self.visible or (variable.scope.is_class and variable.scope is self.owner)
        if seen:
            if any(b.statement is self.replaced for b in bindings):
                pass
            elif self._is_settled(owner, bindings) or (
                variable.scope is not self.visible[0] and self.visible[0].is_function and not variable.scope.is_class
            ):
                return node
        elif kinds == {"parameter"}:
            return self._passed(variable, depth)
        if len(bindings) == 1 and (value := bindings[0].assigned) is not None:
            self.inlined = self.inlined or seen
            if isinstance(value, ast.Constant):
                self.switch = node
            return self.carried(owner, value, depth + 1) or self._observed(variable)
        return self._observed(variable)

    def _observed(self, variable: Variable) -> ast.expr | None:
        """A name at the anchor that held the same object in a run."""
        for same in self.graph.roles.same(variable):
            owner = same.scope.module
            if same.scope is self.visible[0] and self._is_settled(owner, owner.bindings(same)) and "." not in same.name:
                return ast.Name(same.name, ast.Load())
        return None

    def _is_settled(self, owner: Module, bindings: list[Binding]) -> bool:
        """Whether a name has been bound at the anchor for good: above it, or in the constructor of its class."""
        return all(
            b.kind == "parameter"
            or comes_first(owner, b.statement, self.anchor)
            or (
                isinstance(b.target, ast.Attribute)
                and (scope := owner.scope(b.statement)).name == "__init__"
                and scope.owner_class is self.owner
                and scope is not self.visible[0]
            )
            for b in bindings
        )

    def _passed(self, variable: Variable, depth: int) -> ast.expr | None:
        """What every caller hands over for a parameter, if that is one and the same."""
        found: dict[str, ast.expr] = {}
        for caller, _, passed in self.graph.given(variable):
            argument = passed or default_of(variable.scope.node, variable.name)
            carried = self.carried(caller, argument, depth + 1) if argument is not None else None
            if carried is None:
                return None
            found[unparse(carried)] = carried
        return next(iter(found.values())) if len(found) == 1 else None
