"""Training and evaluation loops: where gradients are made, where a loader is only read, and what each uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

from accel_migrate.analysis.values.asked_to_train import told, trains_by
from accel_migrate.analysis.values.roles import Role, Roles, Sites, given_by, is_transparent
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import called_name, calls_method, is_call_of, unparse, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Scope, Variable


@dataclass(frozen=True, eq=False)
class Backward:
    """One backward pass: `call` runs it on `loss`; `scaler` is the GradScaler expression it went through."""

    module: Module
    call: ast.Call
    loss: ast.expr
    scaler: ast.expr | None = None
    function_form: bool = False  # torch.autograd.backward(loss)

    @property
    def function(self) -> Function | None:
        return self.module.scope(self.call).function


@dataclass(frozen=True, eq=False)
class LoaderLoop:
    """A `for` over a loader. `trains` tells whether gradients are made inside it, or in what it calls."""

    module: Module
    statement: ast.For | ast.AsyncFor
    loader: ast.expr
    trains: bool

    @property
    def function(self) -> Function | None:
        return self.module.scope(self.statement).function


_COLLECTS = {"list", "tuple", "set", "sorted", "zip", "sum", "max", "min", "any", "all"}


class CallGraph:
    """Who calls whom among the functions of the project."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.sites: Sites = roles.sites
        self.all_sites = self.sites  # also when seen from one entry of several
        self.callees: dict[Function | None, dict[Function, None]] = {}  # in one order on every run
        self.chains: dict[Variable, list[Variable]] = {}  # filled by provenance.chain
        self.ends: frozenset[Variable] = frozenset()  # of chains: what its own function prepares
        self._reached: dict[tuple[ast.AST, Function | None], set[Function]] = {}
        for function, sites in self.sites.items():
            for module, call in sites:
                self.callees.setdefault(module.scope(call).function, {})[function] = None

    def given(self, parameter: Variable | None) -> list[tuple[Module, ast.Call, ast.expr | None]]:
        """Every call of the function of a parameter, with what it hands over for it: None where it leaves it out."""
        return given_by(self.sites, parameter) if parameter is not None else []

    def handed(self, parameter: Variable | None) -> list[tuple[Module, ast.expr]]:
        """What callers hand over for a parameter, each with its file."""
        return [(caller, argument) for caller, _, argument in self.given(parameter) if argument is not None]

    def bound_to(
        self, variable: Variable, bindings: Iterable[Binding] | None = None
    ) -> Iterator[tuple[Module, ast.expr]]:
        """What a variable, or some bindings of it, may hold, each with its file; of a parameter, what callers hand over."""
        module = variable.scope.module
        for binding in module.bindings(variable) if bindings is None else bindings:
            if binding.kind == "parameter":
                yield from self.handed(variable)
            elif binding.value is not None:
                yield module, binding.value

    def as_seen_from(self, others: list[Scope]) -> CallGraph:
        """The calls without those that other entries make."""
        return self._with(
            {
                function: [(module, call) for module, call in sites if not _made_in(module, call, others)]
                for function, sites in self.sites.items()
            }
        )

    def _with(self, sites: Sites) -> CallGraph:
        own = copy(self)
        own.sites, own.chains = sites, {}
        own.__dict__.pop("_answers", None)  # they are about other calls
        return own

    def ending_at(self, variables: Iterable[Variable]) -> CallGraph:
        """The same calls, where nobody asks where some variables come from."""
        own = self._with(self.sites)
        own.ends = frozenset(variables)
        return own

    def within(self, modules: Iterable[Module]) -> CallGraph:
        """The calls that some files make."""
        made_in = set(modules)
        if all(module in made_in for sites in self.sites.values() for module, _ in sites):
            return self
        return self._with({f: [(m, call) for m, call in sites if m in made_in] for f, sites in self.sites.items()})

    def reached_from(self, node: ast.AST, module: Module, past: Function | None = None) -> set[Function]:
        """Every function of the project that running `node` may call, but for those that only `past` calls."""
        if (node, past) in self._reached:
            return self._reached[node, past]
        targets = [self.roles.function(module, child) for child in module.walk(node, ast.Call)]
        called = [target.node for target in targets if target is not None]
        return self._reached.setdefault((node, past), self.reached_by(called, past))

    def runs_any(self, module: Module, node: ast.AST, backwards: Iterable[Backward]) -> bool:
        """Whether running a node runs one of some backward passes, by itself or by what it calls."""
        own = any(backward.module is module and module.holds(node, backward.call) for backward in backwards)
        return own or not self.reached_from(node, module).isdisjoint([backward.function for backward in backwards])

    def reached_by(self, functions: Iterable[Function], past: Function | None = None) -> set[Function]:
        """Some functions, and every one that they may call."""
        own = [function for function in functions if function is not past]
        found = closure(own, lambda each: [f for f in self.callees.get(each, ()) if f is not past])
        return set(found) if past is None else {past, *found}


def _made_in(module: Module, call: ast.Call, scopes: list[Scope]) -> bool:
    scope: Scope | None = module.scope(call)
    while scope is not None:
        if scope in scopes:
            return True
        scope = scope.parent
    return False


def backward_calls(roles: Roles) -> list[Backward]:
    """The calls that start a backward pass from a scalar loss."""
    return [found for module, call in roles.project.calls if (found := _backward(roles, module, call))]


def _backward(roles: Roles, module: Module, call: ast.Call) -> Backward | None:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "backward":
        return None
    if module.qualified(function) == "torch.autograd.backward":
        return Backward(module, call, call.args[0], None, True) if len(call.args) == 1 else None
    if call.args or any(keyword.arg in ("gradient", None) for keyword in call.keywords):
        return None  # a gradient is handed in: not a scalar loss
    receiver = function.value
    if calls_method(receiver, "scale"):
        if roles.of(module.variable(receiver.func.value)) & Role.SCALER and len(receiver.args) == 1:
            return Backward(module, call, receiver.args[0], receiver.func.value)
    value = roles.value(module, receiver)
    if value.role & (Role.MODEL | Role.OPTIMIZER | Role.LOADER | Role.SCALER) or value.owner is not None:
        return None
    if isinstance(receiver, ast.Call) and unparse(receiver.func) == "super":
        return None
    if isinstance(receiver, ast.Name) and module.scope(call).self_name == receiver.id:
        return None
    if module.qualified(receiver) is not None:
        return None
    return Backward(module, call, receiver)


def loader_loops(graph: CallGraph, backwards: list[Backward]) -> list[LoaderLoop]:
    """Every loop over a loader, in reading order of the files."""
    found: list[LoaderLoop] = []
    for module in graph.roles.project.modules:
        for node in module.walk(module.tree, ast.For, ast.AsyncFor):
            loaders = iterated_loaders(graph.roles, module, node.iter)
            if loaders and not _goes_over_several(graph.roles, module, node):
                trains = _trains(graph, backwards, module, node)
                found += [LoaderLoop(module, node, loader, trains) for loader in loaders]
    return found


def _goes_over_several(roles: Roles, module: Module, loop: ast.For | ast.AsyncFor) -> bool:
    """`for loader in loaders: for batch in loader: ...`: what it goes over are loaders and not batches."""
    inner = (each.iter for each in module.walk(loop, ast.For, ast.AsyncFor) if each is not loop)
    found = {module.variable(loader) for each in inner for loader in iterated_loaders(roles, module, each)}
    return any(module.variable(name) in found for name in module.walk(loop.target, ast.Name))


def _trains(graph: CallGraph, backwards: list[Backward], module: Module, loop: ast.stmt) -> bool:
    """Whether a backward pass runs in a loop, or in what it calls as it calls it."""
    own = {backward.call for backward in backwards}
    inside: dict[Function, list[Backward]] = {}
    for backward in backwards:
        if backward.function is not None:
            inside.setdefault(backward.function, []).append(backward)
    for call in module.walk(loop, ast.Call):
        if call in own:
            return True
        target = graph.roles.function(module, call)
        if target is None:
            continue
        further = graph.callees.get(target.node, ())
        if not inside.keys().isdisjoint(graph.reached_by(further)):
            return True
        if any(_runs(graph.roles, module, call, target, backward) for backward in inside.get(target.node, ())):
            return True
    return False


def _runs(roles: Roles, module: Module, call: ast.Call, target: Definition, backward: Backward) -> bool:
    """Whether a call of the function of a backward pass may run it: not where it hands over that it shall not."""
    above = backward.module.ancestors(backward.call)
    tests = [told(backward.module, parent.test) for parent in above if isinstance(parent, ast.If)]
    return not tests or trains_by(roles, module, call, target, tests) is not False


def makes_loss(loop: LoaderLoop, backward: Backward) -> bool:
    """Whether a loop adds up what one backward pass below it takes: `total += loss`, `losses.append(loss)`."""
    module = backward.module
    if loop.module is not module:
        return False
    around = [parent for parent in module.ancestors(loop.statement) if isinstance(parent, ast.With)]
    quiet = any("no_grad" in unparse(parent.items[0]) for parent in around)
    names = [] if quiet else list(module.walk(backward.loss, ast.Name))
    for name in names:
        variable = module.variable(name)
        bindings = of_this_round(module, name)
        if any(module.holds(loop.statement, binding.statement) for binding in bindings):
            return True
        added = module.method_calls.get(variable, ()) if variable is not None else ()
        if any(method == "append" and module.holds(loop.statement, call) for method, call in added):
            return True
        values = [b.value for b in bindings if b.value is not None and ".item()" not in unparse(b.value)]
        names += [part for value in values for part in module.walk(value, ast.Name) if part not in names]
    return False


def of_this_round(module: Module, loss: ast.expr) -> list[Binding]:
    """What makes a loss that is trained on: what an earlier round left under its name, as an evaluation may, is spent."""
    bindings = reaching(module, loss)
    for above in module.ancestors(loss):
        inside = [each for each in bindings if module.holds(above, each.statement)]
        if isinstance(above, ast.For | ast.While) and inside:
            return inside
    return bindings


def collected_loaders(roles: Roles) -> Iterator[tuple[Module, ast.expr, ast.expr]]:
    """Each expression that goes over all batches of a loader at once, with it: `[y for _, y in loader]`, `list(loader)`."""
    for module in roles.project.modules:
        for node in module.walk(module.tree, ast.ListComp, ast.SetComp, ast.DictComp):
            yield from _collected(roles, module, node, [generator.iter for generator in node.generators])
        for generated in module.walk(module.tree, ast.GeneratorExp):
            yield from _collected(roles, module, generated, [generator.iter for generator in generated.generators])
        for call in module.calls:
            if isinstance(call.func, ast.Name) and call.func.id in _COLLECTS:
                read = [argument.value if isinstance(argument, ast.Starred) else argument for argument in call.args]
                yield from _collected(roles, module, call, read)


def _collected(
    roles: Roles, module: Module, node: ast.expr, read: list[ast.expr]
) -> Iterator[tuple[Module, ast.expr, ast.expr]]:
    found = [(module, node, loader) for part in read for loader in iterated_loaders(roles, module, part)]
    if found and not any(isinstance(a, ast.For) and module.holds(a.iter, node) for a in module.ancestors(node)):
        yield from found


def iterated_loaders(roles: Roles, module: Module, iterated: ast.expr) -> list[ast.expr]:
    """The loaders that a loop reads: one, or those of `zip(labelled, unlabelled)` side by side."""
    inner = _value(iterated)
    while isinstance(inner, ast.Call) and passes_through(module, inner):
        inner = _value(inner.args[0])
    side_by_side = is_call_of(inner, "zip")
    read = inner.args if side_by_side and isinstance(inner, ast.Call) else [iterated]
    return [loader for part in read if (loader := iterated_loader(roles, module, part)) is not None]


def iterated_loader(roles: Roles, module: Module, iterated: ast.expr) -> ast.expr | None:
    """The loader that an iterable goes through: `tqdm(enumerate(loader))` goes through `loader`."""
    for _ in range(6):
        iterated = _value(iterated)
        if isinstance(iterated, ast.Call):
            if not iterated.args or not passes_through(module, iterated):
                return None
            iterated = iterated.args[0]
            continue
        if isinstance(iterated, ast.IfExp) and _either(module, iterated) is not iterated:
            iterated = _either(module, iterated)  # `tqdm(loader) if rank == 0 else loader`
            continue
        if isinstance(iterated, ast.Name):
            bound = [b for b in reaching(module, iterated) if not b.path]
            values = [b.value for b in bound if b.kind != "for"]  # what a loop binds is a batch
            if len(values) == 1 and isinstance(values[0], ast.IfExp) and _either(module, values[0]) is not values[0]:
                iterated = _either(module, values[0])
                continue
            if values and all(isinstance(value, ast.Call) and passes_through(module, value) for value in values):
                assert values[0] is not None
                if len({unparse(value.args[0]) for value in values if isinstance(value, ast.Call)}) > 1:
                    return None  # one bar for several loaders, and which of them is not known here
                iterated = values[0]  # `bar = tqdm(loader)`, looped over later
                continue
        return iterated if roles.role(module, iterated) & Role.LOADER else None
    return None


def _value(node: ast.expr) -> ast.expr:
    """What `(bar := tqdm(loader))` stands for."""
    return node.value if isinstance(node, ast.NamedExpr) else node


def _either(module: Module, choice: ast.IfExp) -> ast.expr:
    """What both branches go through, if that is the same; else the choice itself, which tells nothing."""
    inner = []
    for branch in (choice.body, choice.orelse):
        while isinstance(branch, ast.Call) and passes_through(module, branch):
            branch = branch.args[0]
        inner.append(branch)
    return inner[0] if unparse(inner[0]) == unparse(inner[1]) else choice


def passes_through(module: Module, call: ast.Call) -> bool:
    """Whether a call hands out what its first argument holds, one by one."""
    name = called_name(call)
    return bool(call.args) and (name in ("enumerate", "iter", "cycle") or is_transparent(module, call))


def training_loops(
    graph: CallGraph, backwards: Sequence[Backward], module: Module, node: ast.AST
) -> list[ast.For | ast.While]:
    """The loops around a node that train, by themselves or in what they call, the inner ones first."""
    around = [loop for loop in module.ancestors(node) if isinstance(loop, ast.For | ast.While)]
    return [loop for loop in around if graph.runs_any(module, loop, backwards)]


def numbers_batches(iterated: ast.expr, path: tuple[int, ...]) -> bool:
    """Whether a loop binds the number of a batch there: `i` of `for i, batch in enumerate(loader)`."""
    return path[:1] == (0,) and any(isinstance(node, ast.Name) and node.id == "enumerate" for node in walk(iterated))


def variables_in(module: Module, node: ast.AST) -> Iterator[tuple[Variable, ast.expr]]:
    """Each variable that a replacement of code mentions, with the widest expression that names it."""
    for child in module.walk(node, ast.Name, ast.Attribute):
        variable = module.variable(child)
        if variable is not None:
            yield variable, child
