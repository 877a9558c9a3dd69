"""What runs after `prepare`, and so meets prepared objects, and what runs before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import Place
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import own_statements
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Scope, Variable
from accel_migrate.flow.sequence import follows, may_follow

_MAY_SKIP = (ast.If, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class Timing:
    """The order of things around `prepare`. Functions run late when code after it calls them."""

    home: Scope
    place: Place
    late: frozenset[Function]
    family: frozenset[Scope] = frozenset()  # of a home that is a class: those whose objects are its objects
    following: frozenset[ast.AST] = frozenset()  # statements that run once a function that prepares has come back, and
    # the functions that they call
    early: frozenset[Function] = frozenset()  # of a class that prepares where it trains: those that may run before

    def after_prepare(self, module: Module, node: ast.AST) -> bool:
        scope = module.scope(node)
        function = scope.function
        if function is self._method or (function is None and self.home.parent is None):
            return module is self.home.module and self._below(node)
        if function in self.early:
            return False
        if scope.owner_class in self.family:
            return scope.owner_class is self.home or function is None or function.name != "__init__"
        if function is not None and module.functions[function].parent is self.home:  # a closure of the home
            return function in self.late or self._below(function)
        return function in self.late

    def follows(self, module: Module, node: ast.AST) -> bool:
        """Whether a node runs when a function that prepares has come back: it meets what that left behind."""
        return any(above in self.following for above in (node, *module.ancestors(node)))

    def meets(self, module: Module, node: ast.AST) -> bool:
        """Whether what a node uses may be prepared by then, here or in a function that was called."""
        return self.after_prepare(module, node) or self.follows(module, node)

    def may_run_bare(self, module: Module, node: ast.AST) -> bool:
        """Whether a class prepares only where it trains, and a node is not of that: others may use its objects before."""
        function = module.scope(node).function
        waits = self.home.is_class and self.place.first_use is not None
        return waits and function is not self._method and function not in self.late

    def may_be_skipped(self, graph: CallGraph, module: Module, node: ast.AST) -> bool:
        """Whether a class prepares only where it trains, and a run may come to a node that has not trained before."""
        method = self._method
        if not self.home.is_class or self.place.first_use is None:
            return False
        waiting = [module.scope(node).function]
        for function in waiting:
            for owner, call in graph.sites.get(function, ()) if function not in (None, method) else ():
                around = owner.scope(call).function
                if around is method and self._below(call):
                    continue
                if any(method in graph.reached_from(each, owner) for each in _run_before(owner, call)):
                    continue
                if around is None or around is method or not graph.sites.get(around):
                    return True
                waiting += [around] if around not in waiting else []
        return False

    @cached_property
    def _method(self) -> Function | None:
        """The function that holds `prepare`."""
        return self.place.module.scope(self.place.after).function

    def _below(self, node: ast.AST) -> bool:
        return self.place.comes_before(node)


def find_timing(graph: CallGraph, home: Scope, place: Place) -> Timing:
    module = place.module
    around = module.scope(place.after)
    late: set[Function] = set()
    family = graph.roles.project.family(home) if home.is_class else frozenset[Scope]()
    below = [statement for statement in own_statements(around.node) if place.comes_before(statement)]
    for statement in below:
        late |= graph.reached_from(statement, module)
    following = frozenset(_following(graph, around.function))
    early: set[Function] = set()
    if home.is_class and place.first_use is not None:
        early = _may_precede(graph, home, place)
        late |= {each for each in following if isinstance(each, Function)} - early
    elif home.is_class:
        for owner in family:
            for method in owner.node.body:  # type: ignore[attr-defined]
                earlier = owner is not home and getattr(method, "name", "") == "__init__"
                if isinstance(method, ast.FunctionDef) and method is not around.function and not earlier:
                    late |= graph.reached_from(method, owner.module)
    for built in _built_late(graph.roles, module, below, late):
        late |= {method for method in built.node.body if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)}
    return Timing(home, place, frozenset(late), family, following, frozenset(early))


def _may_precede(graph: CallGraph, home: Scope, place: Place) -> set[Function]:
    """The functions that may run before a method of a class prepares what the class has."""
    method = place.module.scope(place.after).function
    made = [home.constructor] if home.constructor is not None else []
    before: list[tuple[Module, ast.AST]] = [(home.module, node) for node in made]
    ways: list[tuple[Module, ast.AST]] = [(place.module, place.after)]
    for module, step in ways:
        around = module.scope(step)
        above = [each for each in own_statements(around.node) if each is place.after or follows(module, each, step)]
        before += [(module, each) for each in above if each is place.after or not module.holds(each, step)]
        ways += [each for each in graph.sites.get(around.function, ()) if each not in ways]  # type: ignore[arg-type]
    # What another object runs in that method has its own prepared, as here.
    found = {function for module, node in before for function in graph.reached_from(node, module, method)}
    return {*made, *found} - {method}


def _following(graph: CallGraph, function: Function | None) -> Iterator[ast.AST]:
    """What the callers of a function, and their callers, do below the call or in the loop around it."""
    waiting = [function] if function is not None else []
    for each in waiting:
        for module, call in graph.sites.get(each, ()):
            around = module.scope(call)
            for statement in own_statements(around.node):
                if may_follow(module, call, statement):
                    yield statement
                    yield from graph.reached_from(statement, module)
            if around.function is not None and around.function not in waiting:
                waiting.append(around.function)


def is_another(graph: CallGraph, timing: Timing, module: Module, loader: ast.expr) -> bool:
    """Whether each loader that a name may hold there is another one than `prepare` got."""
    found = [*set_anew(graph, timing, module, loader)]
    return bool(found) and all(found)


def set_anew(graph: CallGraph, timing: Timing, module: Module, loader: ast.expr, depth: int = 0) -> Iterator[bool]:
    """For each loader that a name may hold there, whether it was made below `prepare`, which does not get it."""
    variable = module.variable(loader) if isinstance(loader, ast.Name) and depth < 5 else None
    if variable is None:
        yield False
        return
    for binding in reaching(module, loader):
        handed = graph.handed(variable) if binding.kind == "parameter" else []
        if binding.kind == "assign" and isinstance(binding.value, ast.Name):
            handed = [(module, binding.value)]
        for caller, argument in handed:
            yield from set_anew(graph, timing, caller, argument, depth + 1)
        if not handed:
            yield _is_left_bare(timing, module, variable, binding)


def _is_left_bare(timing: Timing, module: Module, variable: Variable, binding: Binding) -> bool:
    """Whether a name beside `prepare` is bound below it to something new that is not prepared either."""
    names = [part for part in module.walk(binding.statement, ast.Name) if isinstance(part.ctx, ast.Load)]
    return (
        binding.kind == "assign"
        and variable.scope is timing.place.module.scope(timing.place.after)
        and timing.after_prepare(module, binding.statement)
        and not timing.place.prepares_later(variable, binding.statement)
        and not any(module.variable(name) == variable for name in names)
    )


def is_built_anew(roles: Roles, timing: Timing, module: Module, node: ast.expr) -> bool:
    """Whether a name beside `prepare` holds a model that was built below it, and nothing that was made of a prepared one."""
    variable = module.variable(node) if isinstance(node, ast.Name) else None
    around = timing.place.module.scope(timing.place.after)
    if variable is None or variable.scope is not around or module.scope(node) is not around:
        return False
    bindings = reaching(module, node)
    return bool(bindings) and all(
        isinstance(binding.assigned, ast.Call)
        and timing.after_prepare(module, binding.statement)
        and not timing.place.prepares_later(variable, binding.statement)
        and not any(
            (held := module.variable(part)) is not None and roles.of(held) & Role.MODEL
            for part in module.walk(binding.assigned, ast.Name, ast.Attribute)
        )
        for binding in bindings
    )


def _run_before(module: Module, call: ast.Call) -> Iterator[ast.stmt]:
    """The statements of a function that every run comes by on its way to a call."""
    inner: ast.AST = module.statement(call)
    while isinstance(inner, ast.stmt) and not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        block = module.block(inner)
        yield from (each for each in block[: block.index(inner)] if not isinstance(each, _MAY_SKIP))
        inner = module.parents[inner]


def _built_late(roles: Roles, module: Module, below: list[ast.stmt], late: set[Function]) -> Iterator[Definition]:
    """Classes that are built after `prepare` and nowhere else: their methods run later still."""
    inside = {call for statement in below for call in module.walk(statement, ast.Call)}
    sites: dict[ast.AST, list[bool]] = {}
    found: dict[ast.AST, Definition] = {}
    for owner, call in roles.project.calls:
        target = roles.made(owner, call)
        if target is not None:
            found[target.node] = target
            sites.setdefault(target.node, []).append(call in inside or owner.scope(call).function in late)
    yield from (target for node, target in found.items() if all(sites[node]))
