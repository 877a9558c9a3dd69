"""Every place of a program that gives a variable, or a field of a class, a value or a part of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from accel_migrate.check.evidence import Side, is_accelerator, step_of
from accel_migrate.flow.calls import Place
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.file_calls import CHANGING_PATHS
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module, Scope

Step = str | tuple[str, object]
Path = tuple[Step, ...]  # which part of a value: `("element", ("item", 0))` is the first of each of its elements
GROWS = frozenset(["append", "extend", "insert", "add", "appendleft", "put", "push"])
_ABOUT_OPTIONS = frozenset(
    ["help", "metavar", "choices", "required", "nargs"]
)  # what an option is comes from elsewhere


class Store(NamedTuple):
    """`value` is stored by `node`: into the whole of the variable (`at` is empty), into a part of it, or into any part."""

    file: Module
    node: ast.AST
    value: ast.expr | None
    of: Path = ()  # which part of `value`
    at: Path = ()  # into which part of the variable
    anywhere: bool = False  # a method that was called with it


class Stores:
    """What each variable and each field of a class may be given, and where."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._of: dict[Place, list[Store]] = {}
        self._reaching: dict[ast.Name, list[Store]] = {}
        for file in side.files:
            for node in file.walk(file.tree,
                ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension,
                ast.withitem, ast.Call,
            ):  # fmt: skip
                self._add(file, node)

    def of(self, place: Place) -> list[Store]:
        return self._of.get(place, [])

    def with_attribute(self, name: str) -> list[tuple[Place, Store]]:
        """Each store into an attribute of a variable, with the variable."""
        return self._into_attributes.get((("attribute", name),), [])

    @cached_property
    def _into_attributes(self) -> dict[Path, list[tuple[Place, Store]]]:
        found: dict[Path, list[tuple[Place, Store]]] = {}
        for place, stores in self._of.items():
            for store in stores:
                if len(store.at) == 1:
                    found.setdefault(store.at, []).append((place, store))
        return found

    def reaching(self, file: Module, name: ast.Name) -> list[Store]:
        """The stores of a variable that a reading of it may see."""
        if name not in self._reaching:
            self._reaching[name] = self._find_reaching(file, name)
        return self._reaching[name]

    def _find_reaching(self, file: Module, name: ast.Name) -> list[Store]:
        side = self._side
        scope = file.scope(name)
        known = self.of(side.flows.variable(scope, name.id))
        home = scope.frame
        if len(known) < 2 or any(s.file is not file or file.scope(s.node).frame is not home for s in known):
            return known
        graph = side.graph(home)
        use = step_of(file, name, graph)
        steps = {store: step_of(file, store.node, graph) for store in known}
        if use is None or None in steps.values():
            return known
        whole = {s for store, s in steps.items() if s and s is not use and not store.at and not store.anywhere}
        coming = graph.arriving(use, steps.values(), whole)
        return [
            s for s, step in steps.items() if step in coming or (step is use and not isinstance(s.node, ast.Assign))
        ]

    def field(self, owner: Scope, name: str) -> Place:
        return ("field of", owner.node, name)

    def _add(self, file: Module, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._told(file, node)
            case ast.Assign():
                for target in node.targets:
                    self._into(file, node, target, node.value, ())
            case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                self._into(file, node, node.target, node.value, ())
            case ast.AugAssign():
                self._put(file, node, node.target, Store(file, node, node.value, anywhere=True))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._into(file, node, node.target, node.iter, ("element",))
            case ast.withitem() if node.optional_vars is not None:
                self._into(file, node, node.optional_vars, node.context_expr, ())

    def _told(self, file: Module, call: ast.Call) -> None:
        """An object is told something: `meter.update(loss)`, `early_stopping(loss, model)`."""
        function = call.func
        target: ast.expr = function
        name = ""
        if not (call.args or call.keywords):
            return
        if isinstance(function, ast.Attribute) and self_of(file, function.value) is None:
            target, name = function.value, function.attr
        elif not self._side.flows.made(file, function, "instance"):
            return
        if is_accelerator(target) or self._side.flows.made(file, target, "prepared") or name in CHANGING_PATHS:
            return  # what is written to the file behind a path is no part of its name
        words = [k.value for k in call.keywords if name != "add_argument" or k.arg not in _ABOUT_OPTIONS]
        for argument in (*call.args, *words):
            if name in GROWS:
                of: Path = ("element",) if name == "extend" else ()
                self._put(file, call, target, Store(file, call, argument, of, ("element",)))
            else:
                self._put(file, call, target, Store(file, call, argument, anywhere=True))

    def _into(self, file: Module, node: ast.AST, target: ast.expr, value: ast.expr, of: Path) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            written = value.elts if isinstance(value, ast.Tuple | ast.List) and not of else []
            for index, part in enumerate(target.elts):
                if len(written) == len(target.elts):
                    self._into(file, node, part, written[index], ())
                else:
                    self._into(file, node, part, value, (*of, ("item", index)))
        elif isinstance(target, ast.Starred):
            self._into(file, node, target.value, value, of[:-1])
        else:
            self._put(file, node, target, Store(file, node, value, of))

    def _put(self, file: Module, node: ast.AST, target: ast.expr, store: Store) -> None:
        """Under the variable, or the field of `self`, at the root of the target."""
        at: Path = ()
        while not isinstance(target, ast.Name):
            if isinstance(target, ast.Attribute):
                owner = self_of(file, target.value)
                if owner is not None:
                    self._of.setdefault(self.field(owner, target.attr), []).append(_below(at, store))
                    return
                for made in self._side.flows.made(file, target.value, "instance"):  # set from outside of the class
                    field = ("field of", made.node, target.attr)
                    self._of.setdefault(field, []).append(_below(at, store))
                at = (("attribute", target.attr), *at)
                target = target.value
            elif isinstance(target, ast.Subscript):
                at = (item_of(target.slice), *at)
                target = target.value
            else:
                return
        if target.id in file.imports and file.binder(target.id, file.scope(target)) is file.root:
            return
        place = self._side.flows.variable(file.scope(target), target.id)
        self._of.setdefault(place, []).append(_below(at, store))


def _below(at: Path, store: Store) -> Store:
    """A store into a part of what a path leads to."""
    return store._replace(at=(*at, *store.at)) if at else store


def item_of(index: ast.expr) -> Step:
    """The part that a subscript names; any element where that is not written out."""
    if isinstance(index, ast.Constant) and not (isinstance(index.value, int) and index.value < 0):
        return ("item", index.value)
    return "element"


@once
def returned(function: Function) -> list[ast.expr]:
    """What a function returns."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    inner = {n for f in walk(function) if isinstance(f, Function) and f is not function for n in walk(f)}
    found = [node for node in walk(function) if isinstance(node, ast.Return) and node not in inner]
    return [node.value for node in found if node.value is not None]


def yielded(function: Function) -> Iterator[ast.expr]:
    """What a generator yields."""
    if isinstance(function, ast.Lambda):
        return
    for node in walk(function):
        if isinstance(node, ast.Yield | ast.YieldFrom) and node.value is not None:
            yield node.value
