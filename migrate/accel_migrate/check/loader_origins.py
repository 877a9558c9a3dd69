"""Where the loader comes from that an expression names, in the order in which a program runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.assignments import Assigned, Assignments
from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names, step_of
from accel_migrate.check.stores import returned
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.torch_api import PASSED_ON

_OF_ACCELERATOR = ("prepare", "prepare_data_loader", "prepare_optimizer")
_HANDED_ON = frozenset([*PASSED_ON, "whole_batches", "skip_first_batches", "track", "alive_it"])
Other = tuple[Module, ast.AST]


def of_every_loader(side: Side) -> Origins:
    """With the loaders that nothing prepares."""
    return Origins(side, of_any=True)


class Origins:
    """Where the value of an expression comes from, as far as it may be something that is not prepared."""

    def __init__(self, side: Side, of_any: bool = False) -> None:
        self._side = side
        self._assignments = side.once(Assignments)
        given = [(file, part) for file, call in side.asked("prepare") for part in call.args]
        prepared = {made.node for file, part in given for made in side.flows.made(file, part, "loader")}
        # Others stay as they are, with all that they need.
        self._loaders = {call for _, call in side.of_library("DataLoader")} if of_any else prepared

    def may_be(self, file: Module, node: ast.expr) -> bool:
        """Whether a loader may get here at all."""
        made = self._side.flows.made(file, node)
        return any(each.kind in ("loader", "prepared") for each in made)

    def view(self, file: Module, argument: ast.expr) -> ast.expr | None:
        """`chain(a, b)`, `tqdm(loader)` that is handed to prepare(): not a loader, but something that goes over one."""
        values: list[ast.expr] = [argument] if isinstance(argument, ast.Call) else []
        if isinstance(argument, ast.Name | ast.Attribute | ast.Subscript):
            values = [one.value for one in self._reaching(file, argument, file, argument)[0] if one.item is None]
        for value in values:
            name = value.func if isinstance(value, ast.Call) else None
            last = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
            goes = last in _HANDED_ON - {"copy", "deepcopy", "list", "tuple", "dict", "set", "partial"}
            if goes and isinstance(value, ast.Call) and any(self._is_loader(file, part) for part in value.args):
                return value
        return None

    def _is_loader(self, file: Module, node: ast.expr) -> bool:
        return bool(self._side.flows.made(file, node, "loader"))

    def other(self, file: Module, node: ast.expr, seen: frozenset[object] = frozenset()) -> Other | None:
        """An expression that the value may come from and that is not what prepare() returned; None where all are."""
        if node in seen or isinstance(node, ast.Constant):
            return None
        seen |= {node}
        match node:
            case ast.Call():
                return self._called(file, node, seen)
            case ast.IfExp():
                return self.other(file, node.body, seen) or self.other(file, node.orelse, seen)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                return self._first(file, parts, seen)
            case ast.Starred() | ast.NamedExpr() | ast.Await():
                return self.other(file, node.value, seen)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return (
                    self._held(file, node, file, node, seen)
                    or self._set_elsewhere(file, node, seen)
                    or self._entry(file, node, seen)
                )
        return None

    def _first(self, file: Module, parts: list[ast.expr], seen: frozenset[object]) -> Other | None:
        loaders = (part for part in parts if self.may_be(file, part))
        return next((found for part in loaders if (found := self.other(file, part, seen)) is not None), None)

    def _called(self, file: Module, call: ast.Call, seen: frozenset[object]) -> Other | None:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(function, ast.Attribute) and is_accelerator(function.value) and name in _OF_ACCELERATOR:
            return None
        if name in _HANDED_ON:
            return self._first(file, [*call.args, *[keyword.value for keyword in call.keywords]], seen)
        flows = self._side.flows
        callees = [each for each in flows.callees.get(call, ()) if getattr(each, "name", "") != "__init__"]
        for callee in callees:
            found = self._first(flows.function_file[callee], list(returned(callee)), seen)
            if found is not None:
                return found
        return (file, call) if not callees and call in self._loaders else None

    def _held(self, file: Module, place: ast.expr, at: Module, node: ast.AST, seen: frozenset[object]) -> Other | None:
        """What a place may hold where a node runs: what its own function set, or what it held when that was called."""
        function = at.scope(node).frame.node
        found, fresh = self._reaching(file, place, at, node)
        for one in found:
            other = self._given(one, seen)
            if other is not None:
                return other
        if not fresh or (function, "entered") in seen:
            return None
        seen |= {(function, "entered")}
        if isinstance(place, ast.Name) and isinstance(function, Function) and place.id in parameter_names(function):
            if self._side.flows.place(file, place) == self._side.flows.variable(at.scope(node), place.id):
                return self._handed(place.id, function, seen)
        sites = self._side.above(function) if isinstance(function, Function) else []
        for site in sites:
            other = self._held(file, place, site.file, site.call, seen)
            if other is not None:
                return other
        return None if sites else self._left_anywhere(file, place, seen)

    def _set_elsewhere(self, file: Module, place: ast.expr, seen: frozenset[object]) -> Other | None:
        """What another function sets a place to, once it is prepared: `global loader`, `trainer.loader = other`."""
        around = file.scope(place).frame
        for one in self._assignments.to(file, place):
            if one.file.scope(one.node).frame is around or not self._side.after_prepare(one.file, one.node):
                continue
            other = self._given(one, seen) if self._is_left(one, file, place) else None
            if other is not None:
                return other
        return None

    def _entry(self, file: Module, node: ast.expr, seen: frozenset[object]) -> Other | None:
        """What a mapping or list that is written out holds, if nothing sets it later: as it was when that was written."""
        if not isinstance(node, ast.Subscript) or self._assignments.to(file, node):
            return None
        for one in self._assignments.to(file, node.value):
            found = self._first(one.file, _entries(one.value, node.slice), seen)
            if found is not None:
                return found
        return None

    def _handed(self, name: str, function: Function, seen: frozenset[object]) -> Other | None:
        """What the callers of a function give for a parameter, or its default."""
        given = [(site.file, argument_of(function, site.call, name)) for site in self._side.above(function)]
        given += self._bound_early(name, function)
        values = ((file, value) for file, value in given if value is not None and self.may_be(file, value))
        return next((other for file, value in values if (other := self.other(file, value, seen)) is not None), None)

    def _bound_early(self, name: str, function: Function) -> Iterator[tuple[Module, ast.expr | None]]:
        """`partial(train, loader=loader)`."""
        for file, call in self._side.calls:
            last = called_name(call)
            if last == "partial" and call.args and not isinstance(call.args[0], ast.Starred):
                if any(made.node is function for made in self._side.flows.made(file, call.args[0], "function")):
                    yield file, argument_of(function, ast.Call(call.func, call.args[1:], call.keywords), name)

    def _given(self, one: Assigned, seen: frozenset[object]) -> Other | None:
        if one.item is not None:  # of a tuple: prepare() returns what is prepared, a function of the project its parts
            return self._unpacked(one, seen)
        return self.other(one.file, one.value, seen) if self.may_be(one.file, one.value) else None

    def _unpacked(self, one: Assigned, seen: frozenset[object]) -> Other | None:
        flows, call = self._side.flows, one.value
        for callee in flows.callees.get(call, ()) if isinstance(call, ast.Call) else ():
            home = flows.function_file[callee]
            for value in returned(callee):
                items = value.elts if isinstance(value, ast.Tuple) else []
                part = items[one.item] if one.item is not None and one.item < len(items) else None
                if part is not None and self.may_be(home, part):
                    other = self.other(home, part, seen)
                    if other is not None:
                        return other
        return None

    def _reaching(self, file: Module, place: ast.expr, at: Module, node: ast.AST) -> tuple[list[Assigned], bool]:
        """The assignments in the function around a node that it may see; and whether it may see what was there before."""
        scope = at.scope(node).frame
        graph = self._side.graph(scope)
        use = step_of(at, node, graph)
        own = [
            one
            for one in self._assignments.to(file, place)
            if one.file is at and at.scope(one.node).frame is scope and graph.holds(one.node)
        ]
        if use is None:
            return own, True
        steps = [one.node for one in own]
        coming = graph.arriving(use, [None, *steps], steps)
        return [one for one in own if one.node in coming], None in coming

    def _left_anywhere(self, file: Module, place: ast.expr, seen: frozenset[object]) -> Other | None:
        """What any function may leave in a place when it ends, and does not prepare after all."""
        for one in self._assignments.to(file, place):
            other = self._given(one, seen) if self._is_left(one, file, place) else None
            if other is not None:
                return other
        return None

    def _is_left(self, one: Assigned, file: Module, place: ast.expr) -> bool:
        """Whether what is assigned may still be there when its function ends, and those that call it."""
        others = [other for other in self._assignments.to(file, place) if other.node is not one.node]
        return self._outlives(one.file, one.node, others, frozenset())

    def _outlives(self, file: Module, node: ast.AST, others: list[Assigned], seen: frozenset[Function]) -> bool:
        scope = file.scope(node).frame
        graph = self._side.graph(scope)
        step = step_of(file, node, graph)
        if step is None:
            return False
        setting = {each.file.scope(each.node).frame.node for each in others}
        calls = [call for call in self._side.preparing(scope) if call in file.parents and self._leads_to(call, setting)]
        later = [*[each.node for each in others], *[step_of(file, call, graph) for call in calls]]
        if not graph.reachable_past(
            step, None, [s for s in later if s is not None and s is not step and graph.holds(s)]
        ):
            return False
        function = scope.node
        if not isinstance(function, Function) or function in seen or getattr(function, "name", "") == "__init__":
            return True
        sites = self._side.above(function)
        return not sites or any(self._outlives(s.file, s.call, others, seen | {function}) for s in sites)

    def _leads_to(self, call: ast.Call, functions: set[ast.AST]) -> bool:
        """Whether a call runs one of some functions, itself or by what it calls."""
        seen: set[Function] = set()
        waiting = [call]
        while waiting:
            new = self._side.flows.callees.get(waiting.pop(), set()) - seen
            if not new.isdisjoint(functions):
                return True
            seen |= new
            waiting += [node for function in new for node in walk(function) if isinstance(node, ast.Call)]
        return False


def _entries(container: ast.expr, key: ast.expr) -> list[ast.expr]:
    """What may be under a key, or at an index."""
    match container:
        case ast.Dict():
            return [
                value for each, value in zip(container.keys, container.values) if each and unparse(each) == unparse(key)
            ]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            index = key.value if isinstance(key, ast.Constant) else None
            return parts[index : index + 1] if isinstance(index, int) and index >= 0 else parts
    return []
