"""What a test turns out to be where that is written down: a constant, or what a call hands over for a parameter."""

from __future__ import annotations

import ast

from accel_migrate.check.evidence import Side, argument_of, parameter_names, step_of
from accel_migrate.check.stores import Stores
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Function, default_of
from accel_migrate.flow.scopes import Module, Scope


class KnownTests:
    """Asked of a function that was entered by a call (by any of them, if None)."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._stores = side.once(Stores)

    def is_skipped(self, file: Module, node: ast.AST, entered: ast.Call | None) -> bool:
        """Whether a node stands under a condition that is known not to hold."""
        return self._are_known(file.scope(node).frame, entered) and any(
            self.truth(file, each.test, entered) is (not branch) for each, branch in self._questions(file, node)
        )

    def truth(self, file: Module, test: ast.expr, entered: ast.Call | None) -> bool | None:
        """Whether a test holds; None where that is not known."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                found = self.truth(file, inner, entered)
                return None if found is None else not found
            case ast.BoolOp(op=op, values=parts):
                decides = isinstance(op, ast.Or)  # what one part must be for the rest not to matter
                answers = {self.truth(file, part, entered) for part in parts}
                return decides if decides in answers else None if None in answers else not decides
            case ast.Compare(
                left=left, ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() as op], comparators=[right]
            ):
                one, other = self._constant(file, left, entered), self._constant(file, right, entered)
                if one is None or other is None:
                    return None
                return (one.value == other.value) is isinstance(op, ast.Is | ast.Eq)
        known = self._constant(file, test, entered)
        return bool(known.value) if known is not None else None

    def _constant(self, file: Module, node: ast.expr, entered: ast.Call | None, depth: int = 0) -> ast.Constant | None:
        if isinstance(node, ast.Constant) or depth > 4:
            return node if isinstance(node, ast.Constant) else None
        scope = file.binder(node.id, file.scope(node)) if isinstance(node, ast.Name) else None
        function = scope.node if scope is not None else None
        if not isinstance(node, ast.Name) or not isinstance(function, Function) or self._stores.reaching(file, node):
            return None
        if node.id not in parameter_names(function):
            return None
        found = []
        for site in self._side.above(function):
            if entered is None or site.call is entered:
                given = argument_of(function, site.call, node.id)
                unseen = any(k.arg is None for k in site.call.keywords) or any(
                    isinstance(each, ast.Starred) for each in site.call.args
                )
                default = None if unseen else default_of(function, node.id)
                found.append(self._constant(site.file, given, None, depth + 1) if given else default)
        same = {(type(each.value), each.value) for each in found if isinstance(each, ast.Constant)}
        known = len(same) == 1 and all(isinstance(each, ast.Constant) for each in found)
        return found[0] if known else None  # type: ignore[return-value]

    @once
    def _are_known(self, frame: Scope, entered: ast.Call | None) -> bool:
        """Whether any test of a function is known: in most, none is."""
        file = frame.module
        return any(self.truth(file, each.test, entered) is not None for each in file.walk(frame.node, ast.If))

    @once
    def _questions(self, file: Module, node: ast.AST) -> list[tuple[ast.If, bool]]:
        """Every `if` that decides whether a node runs, with the branch that leads to it."""
        graph = self._side.graph(file.scope(node))
        step = step_of(file, node, graph)
        if step is None or not graph.is_reached(step):
            return []
        decisions = graph.control_dependences(step)
        return [(each.statement, each.branch) for each in decisions if isinstance(each.statement, ast.If)]
