"""Where the objects of a training are built: from the names that a loop uses back to those that were bound first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from accel_migrate.analysis.values.containers import KEPT, is_looped, looped_from
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Binding, Function, Module, Scope, Variable
from accel_migrate.flow.sequence import follows
from accel_migrate.flow.torch_api import MOVES, itself

_OBJECTS = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER | Role.LOADER


@dataclass(frozen=True)
class Built:
    """An object of a training as its home names it."""

    role: Role
    variable: Variable
    key: str | None = None  # of what is kept in a dictionary or a list, as it is written

    every: bool = False  # all elements of a list, however many there are

    @property
    def text(self) -> str:
        """How it is written at home."""
        if self.every:
            return f"*{self.variable.name}"
        return self.variable.name if self.key is None else f"{self.variable.name}[{self.key}]"


Handed = tuple[
    Built, ast.stmt
]  # a loader, and what builds it or is the first statement of a function that is handed it


class NotMigrated(Exception):
    """Why the objects cannot be prepared in one place, and the file and line where the trouble is."""

    def __init__(self, message: str, at: int | tuple[Module | None, ast.AST | int]) -> None:
        super().__init__(message)
        self.module, where = at if isinstance(at, tuple) else (None, at)  # None: the file of the loop
        self.line: int = where if isinstance(where, int) else getattr(where, "lineno", 1)


class Scattered(NotMigrated):
    """No place has all of the objects."""


def chain(graph: CallGraph, variable: Variable | None) -> list[Variable]:
    """The variable and those it was handed over from, call by call, to where it was built."""
    if variable is None:
        return []
    known = graph.chains.get(variable)
    if known is None:
        known = [variable]
        for current in known:
            sources = _handed_over(graph, current) if current not in graph.ends else []
            if not sources and current not in graph.ends and not _is_made(graph.roles, current):
                if current in graph.roles.observed or not is_root(graph.roles, current):
                    sources = list(graph.roles.same(current))
            known += [source for source in sources if source not in known]
        graph.chains[variable] = known
    return known


def _is_made(roles: Roles, variable: Variable) -> bool:
    """Whether the code tells the call that makes what a variable holds, so that no run need show where it comes from."""
    module = variable.scope.module
    made = [b.whole for b in module.bindings(variable) if isinstance(b.whole, ast.Call)]
    return any(roles.role(module, call) & roles.of(variable) for call in made)


def _handed_over(graph: CallGraph, variable: Variable) -> list[Variable]:
    module = variable.scope.module
    bindings = module.bindings(variable)
    if any(is_looped(binding) for binding in bindings):
        return looped_from(graph.roles, variable)
    if any(binding.kind == "parameter" for binding in bindings):
        parts = [(m, part) for m, argument in graph.handed(variable) for part in _models_in(graph.roles, m, argument)]
        return [source for caller, part in parts if (source := caller.variable(part)) is not None]
    root, dot, path = variable.name.partition(".")
    if dot and not bindings and not variable.scope.is_class:
        # `args.device` where `args` is a parameter: the same attribute of what the callers hand over
        owners = _handed_over(graph, Variable(variable.scope, root))
        return [Variable(owner.scope, f"{owner.name}.{path}") for owner in owners]
    inherited = graph.roles.project.inherited(variable)
    if inherited is not None:
        return [inherited]
    if variable.scope.is_class:
        # `self.model = model`, straight or through `.to(device)`: built by whoever made the parameter
        return [v for b in bindings if b.value is not None and (v := _passed_on(module, b.value)) is not None]
    return _named_again(graph.roles, variable)


def _named_again(roles: Roles, variable: Variable) -> list[Variable]:
    """`loader = self.loader`, `model = net` of a global: what another scope has, under a name of this one."""
    if variable.scope.is_class or not roles.of(variable) & (KEPT | Role.LOADER):
        return []
    module = variable.scope.module
    bindings = module.bindings(variable)
    sources = [module.variable(itself(b.assigned)) for b in bindings if b.assigned is not None]
    known = [source for source in sources if source is not None and source.scope is not variable.scope]
    same = len(known) == len(bindings) and len(set(known)) == 1  # of several it is not known which
    return known[:1] if same else []


def is_passed_on(graph: CallGraph, variable: Variable) -> bool:
    """`self.loader = loader`, and nothing else, where every caller hands over a variable: what an object was made of."""
    module = variable.scope.module
    values = [binding.value for binding in module.bindings(variable)]
    if not variable.scope.is_class or None in values:
        return False
    kept = [_passed_on(module, value) for value in values if value is not None]
    given = [(caller, part) for each in kept if each is not None for caller, _, part in graph.given(each)]
    return None not in kept and all(part is not None and caller.variable(part) is not None for caller, part in given)


def _models_in(roles: Roles, module: Module, value: ast.expr) -> list[ast.expr]:
    """`model` of `model.module`, also behind `model.module if ddp else model`; anything else is what it is."""
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    bare = [p.value for p in parts if isinstance(p, ast.Attribute) and p.attr == "module"]
    return bare if bare and all(roles.role(module, part) & Role.MODEL for part in bare) else [value]


def _passed_on(module: Module, value: ast.expr) -> Variable | None:
    return module.variable(itself(value, MOVES))


def whole_model(roles: Roles, variable: Variable) -> Variable:
    """`net` of `net.fc`, where both are models; a model that is part of none is its own whole."""
    owner, dot, _ = variable.name.rpartition(".")
    while dot:
        whole = Variable(variable.scope, owner)
        if roles.of(whole) & Role.MODEL:
            variable = whole
        owner, dot, _ = owner.rpartition(".")
    return variable


def is_root(roles: Roles, variable: Variable) -> bool:
    """Whether the variable is bound by more than a parameter or a loop: something is built into it."""
    return variable not in roles.followed and _is_built(roles, variable)


@once
def _is_built(roles: Roles, variable: Variable) -> bool:
    module = variable.scope.module
    bindings = module.bindings(variable)
    if _named_again(roles, variable):
        return False
    handed = any(binding.kind == "parameter" for binding in bindings)
    built = [b for b in bindings if b.kind != "parameter" and not is_looped(b)]
    built = [b for b in built if not is_given_back(roles, variable, b)]
    return any(not (handed and _is_itself(module, binding, variable)) for binding in built)


def is_given_back(roles: Roles, variable: Variable, binding: Binding) -> bool:
    """`model, optimizer = restore(model, optimizer)`: a function of the project returns the very objects that it is handed."""
    module, statement = variable.scope.module, binding.statement
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or len(binding.path) > 1:
        return False
    target = statement.targets[0]
    parts = list(enumerate(target.elts)) if isinstance(target, ast.Tuple) else [(None, target)]
    if any(isinstance(part, ast.Starred) for _, part in parts):
        return False
    found = [(v, index) for index, part in parts if (v := module.variable(part)) is not None]
    objects = [(v, index) for v, index in found if v == variable or roles.of(v) & _OBJECTS]
    named = any(v == variable for v, _ in objects)
    return named and all(_returns(roles, v, statement.value, index) for v, index in objects)


def _returns(roles: Roles, variable: Variable, call: ast.Call, index: int | None) -> bool:
    """Whether a call returns what a variable holds and hands over, whole or as one of a tuple."""
    module = variable.scope.module
    target = roles.function(module, call)
    if target is None or target.node.decorator_list:
        return False
    handed = {name for name, part in arguments_of(call, target) if module.variable(part) == variable}
    found = [_item(value, index) for value in target.returned]
    names = {part.id for part in found if isinstance(part, ast.Name)}
    plain = bool(found) and all(isinstance(part, ast.Name) for part in found) and names <= handed
    return plain and all(_stays(target.module, Variable(target.scope, name)) for name in names)


def _item(value: ast.expr, index: int | None) -> ast.expr | None:
    """The part of what is returned that an assignment unpacks."""
    if index is None:
        return value
    if not isinstance(value, ast.Tuple) or any(isinstance(part, ast.Starred) for part in value.elts):
        return None
    return value.elts[index] if index < len(value.elts) else None


def _stays(module: Module, parameter: Variable) -> bool:
    """Whether a parameter is what was handed over to the end: `model = model.to(device)` is, a wrapper is not."""
    bindings = [b for b in module.bindings(parameter) if b.kind != "parameter"]
    return all(b.whole is not None and module.variable(itself(b.whole)) == parameter for b in bindings)


def _is_itself(module: Module, binding: Binding, variable: Variable) -> bool:
    """`loader = tqdm(loader)`, `model = model.to(device)`: what was handed over, under the same name."""
    value = binding.value
    while isinstance(value, ast.Call):
        inner = value.func.value if isinstance(value.func, ast.Attribute) else (value.args[0] if value.args else None)
        if isinstance(inner, ast.Name) and module.qualified(inner) is not None and value.args:
            inner = value.args[0]
        value = inner
    return value is not None and module.variable(value) == variable


class Home(NamedTuple):
    """The scope that names every object of a training; of a trainer whose method builds some of them, also that method."""

    scope: Scope
    method: Scope | None = None

    @property
    def frame(self) -> Scope:
        """What runs where the objects are named: the method, or the scope itself."""
        return self.method or self.scope

    def named(self, links: list[Variable]) -> list[Variable]:
        """Of the names of one object those that can be written here; with a method the nearest to its use."""
        if self.method is None:
            return [variable for variable in links if variable.scope is self.scope]
        own = [
            v for v in links if v.scope is self.method or (v.scope is self.scope and v.name not in self.method.bindings)
        ]
        return own[:1]


def find_homes(graph: CallGraph, chains: list[list[Variable]], training: set[Function | None]) -> Iterator[Home]:
    """The scopes that name every object, the best first, and the methods that train with those of their class."""
    scope = _common_scope(graph.roles, chains)
    if scope is not None:
        yield Home(scope)
    scopes = dict.fromkeys(link.scope for links in chains for link in links)
    homes = [Home(each.module.root, each) for each in scopes if "global" in each.outer_names.values()]
    yield from (home for home in homes if all(_declared(home, links) for links in chains))
    owners = {link.scope for links in chains for link in links if link.scope.is_class}
    for owner in owners if scope is None or scope.is_class else ():
        methods = [owner.module.functions[each] for each in owner.node.body if isinstance(each, Function)]  # type: ignore[attr-defined]
        homes = [Home(owner, method) for method in methods if method.node.name != "__init__"]  # type: ignore[attr-defined]
        reached = {home: {home.frame.node, *graph.reached_from(home.frame.node, owner.module)} for home in homes}
        called = {function for function, sites in graph.sites.items() if sites}
        homes = [home for home in homes if home.frame.node in called or _built_in(graph.roles, chains, home.frame)]
        fit = [home for home in homes if training <= reached[home] and all(map(home.named, chains))]
        first = [home for home in fit if not any(home.frame.node in reached[other] for other in fit if other != home)]
        yield from sorted(first, key=lambda home: -_built_in(graph.roles, chains, home.frame))
    building = [each for each in scopes if each.is_function and _built_in(graph.roles, chains, each)]
    once = [Home(each.module.root, each) for each in building if _runs_once(graph, each)]
    once = [
        home for home in once if training <= {home.frame.node, *graph.reached_from(home.frame.node, home.scope.module)}
    ]
    yield from (home for home in once if all(_borrowed(home, links) for links in chains))


def _declared(home: Home, links: list[Variable]) -> bool:
    """Whether a function names an object: one of its own, or one that it declares `global` and builds alone."""
    module = home.scope.module
    named = home.named(links)
    bound = [b for v in named if v.scope is home.scope for b in module.bindings(v)]
    return bool(named) and all(module.scope(b.statement) is home.frame for b in bound)


def _borrowed(home: Home, links: list[Variable]) -> bool:
    """Whether a function names an object: one of its own, or a global that only the file itself builds."""
    module = home.scope.module
    named = home.named(links)
    bound = [b for v in named if v.scope is home.scope for b in module.bindings(v)]
    return bool(named) and all(module.scope(b.statement) is home.scope and b.kind == "assign" for b in bound)


def _runs_once(graph: CallGraph, function: Scope) -> bool:
    """Whether a file calls a function of its own once, outside of all functions and loops."""
    module = function.module
    sites = graph.all_sites.get(function.node, [])  # type: ignore[call-overload]
    return len(sites) == 1 and all(
        caller is module
        and module.scope(call) is module.root
        and not any(isinstance(around, ast.For | ast.While) for around in module.ancestors(call))
        for caller, call in sites
    )


def _common_scope(roles: Roles, chains: list[list[Variable]]) -> Scope | None:
    """The class of a trainer, or the scope where most were built."""
    scopes = [{variable.scope for variable in links} for links in chains]
    common = set.intersection(*scopes) if scopes else set()
    if not common:
        return None
    first = [links[0].scope for links in chains]
    if all(scope.is_class for scope in first) and len(set(first)) == 1:
        first_names = [links[0] for links in chains]
        bound = [v if v.scope.module.bindings(v) else roles.project.inherited(v) for v in first_names]
        setting = {variable.scope for variable in bound if variable is not None}
        if None not in bound and (first[0] in setting or len(setting) == 1):
            return first[0] if first[0] in setting else setting.pop()

    def depth(scope: Scope) -> int:
        return 0 if scope.parent is None else 1 + depth(scope.parent)

    common_order = [link.scope for link in chains[0] if link.scope in common]  # from the use to where it was built
    return max(reversed(common_order), key=lambda scope: (_built_in(roles, chains, scope), -depth(scope)))


def _built_in(roles: Roles, chains: list[list[Variable]], scope: Scope) -> int:
    """How many of the objects a scope builds; a class that keeps what it is handed builds nothing."""
    return sum(any(v.scope is scope and is_root(roles, v) and not _is_kept(v) for v in links) for links in chains)


def _is_kept(variable: Variable) -> bool:
    """`self.model = model`, for a parameter: what an object keeps is built by who makes the object."""
    module = variable.scope.module
    values = [b.value for b in module.bindings(variable) if b.value is not None] if variable.scope.is_class else []
    sources = [_passed_on(module, value) for value in values]
    return bool(sources) and all(module.is_parameter(source) for source in sources)


def scattered(roles: Roles, chains: list[list[Variable]]) -> str:
    """Which of the objects belongs to which scope, where none has them all: the reason for leaving a loop."""
    names: dict[Scope, dict[str, None]] = {}
    for links in chains:
        built = next((link for link in links if is_root(roles, link)), links[-1])
        names.setdefault(built.scope, {})[f"`{built.name}`"] = None
    told = [f"{_listed(list(found))} in {_named(scope)}" for scope, found in names.items()]
    return f"no place has all that `prepare` must take: {'; '.join(told)}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _named(scope: Scope) -> str:
    if scope.is_class:
        return f"the class {scope.node.name}"  # type: ignore[attr-defined]
    inside = f" of {scope.module.source.path.name}"
    return f"{scope.node.name}(){inside}" if scope.is_function else f"the globals{inside}"  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Later:
    """What the statements `made` give a name, once an earlier training has begun, is prepared right after `after`."""

    built: Built
    made: tuple[ast.stmt, ...]
    after: ast.stmt


@dataclass(frozen=True, eq=False)
class Place:
    """Where `prepare` goes: right after `after`, in `block`, before `first_use` (None: used elsewhere).

    What is built only under a condition is prepared `apart`, where it is built; loaders that all rounds of a loop around
    `after` go over are `shared` by them, and prepared before that loop. What another training builds further down in
    `block` is prepared `later`, also where that gives a name a new object.
    """

    module: Module
    block: list[ast.stmt]
    after: ast.stmt
    first_use: ast.stmt | None
    apart: tuple[tuple[Built, ast.stmt], ...] = ()
    shared: tuple[tuple[Built, ast.stmt], ...] = ()
    later: tuple[Later, ...] = ()
    waiting: frozenset[Built] = frozenset()  # of those in `later`, the ones that are not built yet at `after`
    handed: tuple[Handed, ...] = ()

    def again(self) -> list[tuple[ast.stmt, list[Built]]]:
        """The later statements after which something is prepared, in their order, each with what that is."""
        found: dict[ast.stmt, list[Built]] = {}
        for one in self.later:
            found.setdefault(one.after, []).append(one.built)
        return list(found.items())

    def comes_before(self, node: ast.AST) -> bool:
        """Whether a node of the same function can run once all is prepared, in the same round of a loop around both."""
        return self._comes_before(self.module.statement(node))

    @once
    def _comes_before(self, statement: ast.stmt) -> bool:
        return follows(self.module, self.after, statement) and not self.module.holds(self.after, statement)

    def prepares_later(self, variable: Variable, made: ast.stmt) -> bool:
        """Whether what a statement gives a variable is prepared further down."""
        return any(one.built.variable == variable and made in one.made for one in self.later)
