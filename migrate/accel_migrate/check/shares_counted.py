"""The part of AM955 about figures that stay on their process: passes over a prepared loader that count, and gather nothing.

A pass does not train where no backward pass can run in it: under `no_grad`, or because the call that leads to it says so
(`step(x, y, optimizer=None)`). What it lets out (a sum, a list, a field) must be brought together, in the pass or afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accel_migrate.check.evidence import Found, Side, argument_of, is_accelerator, parameter_names, prepares
from accel_migrate.check.known_tests import KnownTests
from accel_migrate.check.loaders_prepared import TrainingLoops
from accel_migrate.flow.calls import Made, Site
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

GATHERS = ("gather", "gather_for_metrics", "sum_for_metrics", "reduce")
GROWS = ("append", "extend", "update", "add", "add_batch")
_COLLECTS = ("list", "tuple", "set", "sorted", "zip", "sum", "max", "min", "any", "all", "map")
_CONTAINERS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp)
_QUIET = ("torch.no_grad", "torch.inference_mode")


class Shares:
    """What is counted of a process's own batches."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._tests = side.once(KnownTests)

    def found(self) -> Found:
        yield from self._collected()
        for file in self._side.files:
            for node in file.walk(file.tree, ast.For, ast.While):
                for entered in self._passes(file, node):
                    if self._counts(file, node, entered):
                        text = f"the loop over the prepared {self._over(file, node)} counts and gathers nothing"
                        yield file, node, f"{text}: each process would count its own batches only"
                        break

    # ---- passes

    def _collected(self) -> Found:
        """`[y for _, y in loader]`, `list(loader)`: all batches at once, of which each process would have its own."""
        side = self._side
        for file in side.files:
            for node in file.walk(file.tree, ast.comprehension, ast.Call):
                if isinstance(node, ast.comprehension):
                    around, read = file.parents[node], [node.iter]
                elif isinstance(node.func, ast.Name) and node.func.id in _COLLECTS:
                    around, read = node, [a.value if isinstance(a, ast.Starred) else a for a in node.args]
                else:
                    continue
                if any(isinstance(above, ast.For) and file.holds(above.iter, node) for above in file.ancestors(node)):
                    continue  # what a loop goes over
                for loader in read:
                    if not (self._is_prepared(file, loader) and self._is_loader(file, loader)):
                        continue
                    if not self._trains(file, around, None) and not self._gathers(around):
                        text = f"`{unparse(around)[:60]}` goes over the prepared `{unparse(loader)}`"
                        yield file, around, f"{text}: each process would have its own batches of it"

    def _is_loader(self, file: Module, node: ast.expr) -> bool:
        """Whether a prepared object is a loader, and not what several of them are kept in."""
        side = self._side
        variable = file.variable(node)
        held = [node, *[binding.value for binding in file.bindings(variable)]] if variable is not None else [node]
        if any(isinstance(value, _CONTAINERS) for value in held):
            return False
        prepared = set(side.flows.made(file, node, "prepared"))
        return any(
            side.flows.made(origin, argument, "loader")
            for origin, prepare in side.asked("prepare")
            for at, argument in enumerate(prepare.args)
            if any(made[1:] == (prepare, at) for made in prepared)
        )

    def _is_prepared(self, file: Module, node: ast.expr) -> bool:
        """Whether an expression is a prepared loader; read by a key that nobody knows, out of what keeps some under any key."""
        flows = self._side.flows
        if not self._side.is_prepared(file, node):
            return False
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Constant):
            return True
        names = flows.sources(flows.place(file, node.value))
        return self._side.is_prepared(file, node.value) or any(
            any(made.kind == "prepared" for made in flows.objects.get(("key", entry.slice.value), ()))
            and not names.isdisjoint(flows.sources(flows.place(at, entry.value)))
            for at in self._side.files
            for entry in at.walk(at.tree, ast.Subscript)
            if isinstance(entry.slice, ast.Constant) and isinstance(entry.ctx, ast.Store)
        )

    def _passes(self, file: Module, loop: ast.For | ast.While) -> Iterator[Site | None]:
        """The calls by which a loop comes to go over a prepared loader."""
        side = self._side
        function = file.scope(loop).frame.node
        sites: list[Site | None] = [*side.above(function)] if isinstance(function, Function) else []
        read = loop.iter if isinstance(loop, ast.For) else None
        handed = self._handed(file, read, function) if read is not None and isinstance(function, Function) else []
        every = read is not None and (self._is_prepared(file, read) or self._is_yielded(file, read))
        for site in sites or [None]:
            if handed and site is not None and isinstance(function, Function):
                given = [(site.file, argument_of(function, site.call, name)) for name in handed]
                held = [(at, each) for at, each in given if each is not None and not isinstance(each, _CONTAINERS)]
                parts = [(at, each) for at, each in held if self._is_prepared(at, each)]
                # Beside loaders that are whole, a process may look at its shard of what it trains on.
                if parts and (every or not any(self._trained & side.flows.made(*each, "prepared") for each in parts)):
                    yield site
            elif every or self._drawn(file, loop):
                yield site

    @cached_property
    def _trained(self) -> set[Made]:
        """The prepared loaders that a training loop goes over."""
        flows, found = self._side.flows, set[Made]()
        for file, loop in self._side.once(TrainingLoops).found:
            function = file.scope(loop).frame.node
            handed = self._handed(file, loop.iter, function) if isinstance(function, Function) else []
            if not isinstance(function, Function) or not handed:
                found |= flows.made(file, loop.iter, "prepared")
                continue
            for site in (site for site in self._side.above(function) if self._trains(file, loop, site)):
                given = [argument_of(function, site.call, name) for name in handed]
                found.update(*[flows.made(site.file, each, "prepared") for each in given if each is not None])
        return found

    def _handed(self, file: Module, read: ast.expr, function: Function) -> list[str]:
        """The parameters by which callers say what a loop goes over."""
        flows = self._side.flows
        if self._side.is_other(file, read, "prepared"):
            return []
        sources = flows.sources(flows.place(file, read))
        places = {name: flows.variable(file.scopes[function], name) for name in parameter_names(function)}
        return [
            name
            for name, place in places.items()
            if place in sources
            and any(made.kind == "prepared" for made in flows.objects.get(place, ()))
            and not prepares(function, name)
        ]

    def _is_yielded(self, file: Module, read: ast.expr) -> bool:
        """`for out, y in outputs(net, loader)`, of a function that goes over a prepared loader and yields."""
        for call in (part for part in walk(read) if isinstance(part, ast.Call)):
            for callee in self._side.flows.callees.get(call, ()):
                home = self._side.flows.function_file[callee]
                loops = [
                    n for n in walk(callee) if isinstance(n, ast.For) and any(isinstance(y, ast.Yield) for y in walk(n))
                ]
                if any(site is not None and site.call is call for each in loops for site in self._passes(home, each)):
                    return True
        return False

    def _drawn(self, file: Module, loop: ast.AST) -> ast.expr | None:
        """The iterator of a prepared loader that is drawn from, by `next`, in each round."""
        calls = [n for n in walk(loop) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "next" and n.args]
        return next((call.args[0] for call in calls if self._side.is_prepared(file, call.args[0])), None)

    def _over(self, file: Module, loop: ast.For | ast.While) -> str:
        read = self._drawn(file, loop) or (loop.iter if isinstance(loop, ast.For) else loop.test)
        return unparse(read)[:50]

    # ---- whether a pass trains

    def _trains(self, file: Module, around: ast.AST, entered: Site | None) -> bool:
        """Whether a backward pass may run in a part of a program that was entered by a call."""
        if entered is not None and any(isinstance(node, ast.Yield) for node in walk(around)):
            loops = loops_over(entered.file, entered.call)  # which go over what it yields
            return any(self._trains(entered.file, loop, None) for loop in loops)
        return not self._is_quiet(file, around, entered, frozenset()) and self._runs_backward(
            file, around, entered, frozenset()
        )

    def _runs_backward(self, file: Module, around: ast.AST, entered: Site | None, seen: frozenset[Function]) -> bool:
        flows = self._side.flows
        for call in (node for node in walk(around) if isinstance(node, ast.Call)):
            callees = flows.callees.get(call, set()) - seen
            runs = isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "step") and not callees
            if not runs:
                site = Site(file, call)
                runs = any(self._runs_backward(flows.function_file[f], f, site, seen | {f}) for f in callees)
            if runs and not self._tests.is_skipped(file, call, entered.call if entered is not None else None):
                return True
        return False

    def _is_quiet(self, file: Module, node: ast.AST, entered: Site | None, seen: frozenset[ast.AST]) -> bool:
        """Whether a node runs without gradients, by a `with` or a decorator, here or around the call that leads to it."""
        for above in file.ancestors(node):
            if isinstance(above, ast.With):
                entering = [file.qualified(getattr(i.context_expr, "func", i.context_expr)) or "" for i in above.items]
                if any(name in _QUIET or name == "torch.enable_grad" for name in entering):
                    return "torch.enable_grad" not in entering
            if isinstance(above, Function):
                decorators = [getattr(d, "func", d) for d in getattr(above, "decorator_list", ())]
                if any(file.qualified(each) in _QUIET for each in decorators):
                    return True
                sites = [entered] if entered is not None else self._side.above(above)
                return (
                    above not in seen
                    and bool(sites)
                    and all(self._is_quiet(site.file, site.call, None, seen | {above}) for site in sites)
                )
        return False

    # ---- what a pass lets out, and what brings it together

    def _counts(self, file: Module, loop: ast.For | ast.While, entered: Site | None) -> bool:
        """Whether figures grow in an evaluation over a prepared loader and nothing brings the processes together."""
        names = self._let_out(file, loop)
        if names and self._gathers(loop):  # those of whole batches are looked at statement by statement
            names = frozenset() if loop in self._over_whole else self._beside(file, loop)
        if not names or self._trains(file, loop, entered):
            return False
        return not self._is_gathered(file, loop, names, entered, frozenset())

    @cached_property
    def _over_whole(self) -> set[ast.For]:
        return {loop for file, call in self._side.asked("whole_batches") for loop in loops_over(file, call)}

    def _let_out(self, file: Module, loop: ast.For | ast.While) -> frozenset[str]:
        """The names and fields that a pass leaves figures in, by itself or by a function that it hands its batches to."""
        own, bound = own_names(file, loop), _bound(loop)
        found = {key for node in walk(loop) for key in _grown(file, node, own)}
        if not any(isinstance(node, ast.Break) for node in walk(loop)):  # or it only looks for some
            found |= {key for node in walk(loop) for key in _entered(node, bound)}
        for call in (node for node in walk(loop) if isinstance(node, ast.Call)):
            given = {
                key for part in (*call.args, *[keyword.value for keyword in call.keywords]) for key in _read_in(part)
            }
            for callee in self._side.flows.callees.get(call, ()) if given & bound else ():
                if getattr(callee, "name", "") not in ("forward", "__init__"):
                    found |= self._grown_by(callee, call)
        return frozenset(found)

    def _beside(self, file: Module, loop: ast.For | ast.While) -> frozenset[str]:
        """What grows by this process's batch, where others grow by what is gathered."""
        own, bound, gathered = own_names(file, loop), _bound(loop), set[str]()
        given = [(n.value, target) for n in walk(loop) if isinstance(n, ast.Assign) for target in n.targets]
        given += [(n.iter, n.target) for n in walk(loop) if isinstance(n, ast.For) and n is not loop]
        while (
            more := {
                name
                for value, target in given
                if self._gathers(value) or _read_in(value) & gathered
                for name in _bound(target)
            }
            - gathered
        ):
            gathered |= more
        growing = [node for node in walk(loop) if isinstance(node, ast.AugAssign | ast.Expr)]
        alone = [n for n in growing if _read_in(n) & bound and not _read_in(n) & gathered and not self._gathers(n)]
        return frozenset(key for node in alone for part in walk(node) for key in _grown(file, part, own))

    def _grown_by(self, function: Function, call: ast.Call) -> set[str]:
        """What a function leaves figures in that outlives it, as its caller names it: a field, a global, what it was handed."""
        outer = {name for n in walk(function) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
        own, file = _bound(function) - outer, self._side.flows.function_file[function]
        found = {key for node in walk(function) for key in _grown(file, node, own)}
        handed = {key: argument_of(function, call, key) for key in found.intersection(parameter_names(function))}
        return (found - handed.keys()) | {_kept_in(given) for given in handed.values() if given is not None}

    def _gathers(self, around: ast.AST, seen: frozenset[Function] = frozenset()) -> bool:
        """Whether a part of a program brings the processes together, itself or by what it calls."""
        return any(self._is_gather(node, seen) for node in walk(around) if isinstance(node, ast.Call))

    def _is_gather(self, call: ast.Call, seen: frozenset[Function] = frozenset()) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr in GATHERS and is_accelerator(call.func.value):
            return True
        callees = self._side.flows.callees.get(call, set()) - seen
        return any(self._gathers(callee, seen | {callee}) for callee in callees)

    def _is_gathered(
        self, file: Module, node: ast.AST, names: frozenset[str], entered: Site | None, seen: frozenset[Function]
    ) -> bool:
        """Whether what a node gives, or leaves under some names, is brought together: in its function or by who calls that."""
        frame = file.scope(node).frame.node
        inside = [n for n in walk(frame) if isinstance(n, ast.Assign | ast.Return | ast.Yield | ast.Call)]
        set_to = [n for n in inside if isinstance(n, ast.Assign)]
        while (
            more := {
                kept
                for n in set_to
                if _read_in(n.value) & names or file.holds(n.value, node)
                for target in n.targets
                for kept in map(_kept_in, _parts(target))
            }
            - names
        ):
            names |= more
        reading = [n for n in inside if _read_in(n) & names or (n is not node and file.holds(n, node))]
        if any(isinstance(n, ast.Call) and self._is_gather(n) for n in reading):
            return True
        fields = {name for name in names if name.startswith(".")}
        if fields and any(_read_in(call) & fields for _, call in self._side.asked(*GATHERS)):
            return True
        if not isinstance(frame, Function) or frame in seen:
            return False
        returned = any(isinstance(n, ast.Return | ast.Yield) for n in reading)
        handed = names.intersection(parameter_names(frame))
        for site in ([entered] if entered is not None else self._side.above(frame)) if returned or handed else ():
            given = [argument_of(frame, site.call, name) for name in handed]
            kept = frozenset(_kept_in(each) for each in given if each is not None)
            at: ast.AST = site.call if returned else site.file.statement(site.call)
            if self._is_gathered(site.file, at, kept, None, seen | {frame}):
                return True
        return False


def own_names(file: Module, loop: ast.AST) -> set[str]:
    """The names that a loop binds to something new."""
    stored = [n for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return {n.id for n in stored if not _goes_on(file, n)}


def _bound(around: ast.AST) -> set[str]:
    return {n.id for n in walk(around) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _grown(file: Module, node: ast.AST, own: set[str]) -> Iterator[str]:
    """`total += ...`, `losses.append(...)`, `total = total + ...`, of what is not made here."""
    match node:
        case ast.AugAssign(target=target) if root(target) not in own:
            yield _kept_in(target)
        case ast.Name(ctx=ast.Store()) if node.id not in own and _goes_on(file, node):
            yield node.id
        case ast.Call(func=ast.Attribute(value=kept, attr=attr)) if attr in GROWS and root(kept) not in own:
            if not only_shows(file, node):
                yield _kept_in(kept)
        case ast.Expr(value=ast.Call(func=kept)) if keeps_what_it_gets(file, node) and root(kept) not in own:
            yield _kept_in(kept)


def keeps_what_it_gets(file: Module, statement: ast.Expr) -> bool:
    """`metric(net(x), y)`, of an object that keeps what it is called with."""
    match statement.value:
        case ast.Call(func=ast.Name() | ast.Attribute() as kept, args=[_, _, *_]):
            return any(isinstance(binding.value, ast.Call) for binding in file.bindings_of(kept))
    return False


def _entered(node: ast.AST, bound: set[str]) -> Iterator[str]:
    """`rows[i] = out`: an entry of its own for each batch."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=key) as target]) if (
            root(target) not in bound and _read_in(key) & bound
        ):
            yield _kept_in(target)


def _goes_on(file: Module, name: ast.Name) -> bool:
    """Whether a name is bound to what it was before and more."""
    around = file.parents[name]
    if isinstance(around, ast.AugAssign):
        return True
    value = around.value if isinstance(around, ast.Assign) else name
    return any(n.id == name.id and n is not name for n in file.walk(value, ast.Name))


def only_shows(file: Module, call: ast.expr) -> bool:
    """`clock.update(time.time() - end)`, `bar.update(1)`."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    given = [n for argument in call.args for n in walk(argument) if isinstance(n, ast.Call)]
    if given and all((file.qualified(n.func) or "").partition(".")[0] in ("time", "timeit") for n in given):
        return True
    bars = [n for n in walk(file.scope(call).frame.node) if isinstance(n, ast.Assign | ast.withitem)]
    return any(
        "tqdm" in unparse(n.value if isinstance(n, ast.Assign) else n.context_expr)
        and root(call.func.value) in {t.id for t in walk(n) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}
        for n in bars
    )


def root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _kept_in(target: ast.expr) -> str:
    """A variable by its name, a field of whatever object as `.field`."""
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    return f".{target.attr}" if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _parts(target: ast.expr) -> list[ast.expr]:
    return (
        [part for each in target.elts for part in _parts(each)]
        if isinstance(target, ast.Tuple | ast.List)
        else [target]
    )


def _read_in(node: ast.AST) -> set[str]:
    return {_kept_in(part) for part in walk(node) if isinstance(part, ast.Name | ast.Attribute)}


def loops_over(file: Module, call: ast.Call) -> list[ast.For]:
    """The loop that goes over a call's result, in its own line or by the name of a bar around it."""
    above = next((above for above in file.ancestors(call) if isinstance(above, ast.For)), None)
    if above is not None and file.holds(above.iter, call):
        return [above]
    statement = next(above for above in file.ancestors(call) if isinstance(above, ast.stmt))
    names = stored(statement)
    loops = [node for node in walk(file.scope(call).frame.node) if isinstance(node, ast.For)]
    return [loop for loop in loops if any(isinstance(n, ast.Name) and n.id in names for n in walk(loop.iter))]


def stored(statement: ast.stmt) -> set[str]:
    """The names that a statement itself binds."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.For | ast.AsyncFor | ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    else:
        return set()
    return {n.id for target in targets for n in walk(target) if isinstance(n, ast.Name)}
