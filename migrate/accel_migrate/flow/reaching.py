"""Which bindings a name may hold where it is read: reaching definitions over the control-flow graph."""

from __future__ import annotations

import ast

from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.definitions import LATER_PARTS, binds_later, owner_of
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Binding, Module, Scope, Variable

_IN_GRAPHS = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# What goes through a generator before it returns; others, such as `map`, may keep it for later.
_CONSUMERS = frozenset(
    ("all", "any", "dict", "extend", "frozenset", "join", "list", "max", "min", "set", "sorted", "sum", "tuple")
)


@once
def reaching(module: Module, node: ast.AST) -> list[Binding]:
    """The bindings whose value a name may hold here, the nearest above first; not that of its own statement.

    An attribute may hold any that is bound to it in this file; any other expression is bound to nothing.
    """
    variable = module.variable(node)
    if not isinstance(node, ast.Name) or variable is None:
        return module.bindings(variable)
    scope = variable.scope
    bindings = scope.bindings.get(variable.name, [])
    if not bindings or not isinstance(scope.node, _IN_GRAPHS) or not _is_read_in_place(module, node, scope):
        return bindings
    here = owner_of(module, node)
    if isinstance(here, ast.For | ast.AsyncFor) and not module.holds(here.iter, node):
        own = [binding for binding in bindings if binding.statement is here and binding.kind == "for"]
        if own:
            return own
    return _reaching_in(module, scope.frame).at(here, variable)


class _Reaching:
    """For each statement of a scope the bindings that a run may bring to it, as bits."""

    def __init__(self, module: Module, frame: Scope) -> None:
        self._module = module
        self._points = graph_of(module.tree, frame.node).points  # type: ignore[arg-type]
        self._bindings: list[Binding] = []
        self._of: dict[Variable, int] = {}
        gain: dict[tuple[ast.AST, bool], int] = {}
        loss: dict[tuple[ast.AST, bool], int] = {}
        entry = 0
        for scope in (
            each for each in module.scopes.values() if each is frame or (each.is_class and each.frame is frame)
        ):
            for name, bindings in scope.bindings.items():
                first = len(self._bindings)
                self._bindings += bindings
                self._of[Variable(scope, name)] = mask = (1 << len(self._bindings)) - (1 << first)
                for number, binding in enumerate(bindings, first):
                    if binding.kind == "parameter":
                        entry |= 1 << number
                        continue
                    place = (owner_of(module, binding.target), binds_later(binding))
                    gain[place] = gain.get(place, 0) | 1 << number
                    if binding.kind != "augment":  # what was there is still a part of it
                        loss[place] = loss.get(place, 0) | mask
        places = [(point.node, point.part in LATER_PARTS) for point in self._points.points]
        self._into: list[int | None] = self._solve(
            entry, [(gain.get(place, 0), ~loss.get(place, 0)) for place in places]
        )

    def _solve(self, entry: int, changes: list[tuple[int, int]]) -> list[int | None]:
        """What comes to each point; None where no run does."""
        into: list[int | None] = [None] * len(changes)
        into[0] = entry
        waiting = [0]
        while waiting:
            number = waiting.pop()
            state = into[number] or 0
            out = state & changes[number][1] | changes[number][0]
            for edges, brought in ((self._points.successors, out), (self._points.raising, out | state)):
                for after in edges[number]:
                    known = into[after]
                    if known is None or known | brought != known:
                        into[after] = brought | (known or 0)
                        waiting.append(after)
        return into

    def at(self, here: ast.AST, variable: Variable) -> list[Binding]:
        """What a variable may hold at a statement; where no run comes to it, anything."""
        states = [state for point in self._points.of[here] if (state := self._into[point]) is not None]
        bits = self._of[variable] if not states else 0
        for state in states:
            bits |= state & self._of[variable]
        found = [b for number, b in enumerate(self._bindings) if bits >> number & 1 and b.statement is not here]
        above = [binding for binding in found if self._module.is_written_before(binding.statement, here)]
        return [*reversed(above), *[binding for binding in found if binding not in above]]


@once
def _reaching_in(module: Module, frame: Scope) -> _Reaching:
    return _Reaching(module, frame)


def _is_read_in_place(module: Module, node: ast.Name, home: Scope) -> bool:
    """Whether a name is read where it stands in its own scope: a comprehension runs there, a function when it is called."""
    scope = module.scope(node)
    while scope is not home and scope.parent is not None and _runs_at_once(module, scope.node):
        scope = scope.parent
    return scope is home


def _runs_at_once(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.GeneratorExp):
        around = module.parents[node]
        function = around.func if isinstance(around, ast.Call) else None
        return getattr(function, "id", getattr(function, "attr", "")) in _CONSUMERS
    return isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)
