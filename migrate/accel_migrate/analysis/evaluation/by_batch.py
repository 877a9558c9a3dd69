"""Evaluations by whole batches: each process has some of the batches, as they were, and their figures are added up.

Whatever a figure is made of, it is the original's where its batch is the original's. So nothing is asked of the figure
itself, only that a round of the loop leaves nothing behind but what it adds to sums and lists.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.beginnings import Beginnings, is_list
from accel_migrate.analysis.evaluation.counting import Count, Counter, wrapped
from accel_migrate.analysis.evaluation.display import Shown
from accel_migrate.analysis.evaluation.figures import NotExact, stored_in
from accel_migrate.analysis.evaluation.quiet import Quiet, root_of
from accel_migrate.analysis.evaluation.replayed import Replay, Replayed
from accel_migrate.analysis.evaluation.results import check_after, is_length
from accel_migrate.analysis.evaluation.showing import only_shows
from accel_migrate.analysis.values.asked_to_train import told
from accel_migrate.analysis.values.constructions import collates_graphs, has_length, pads_batches
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import assignment_of, calls_method, unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function, Module

_MORE = "the loop does more than add up its figures"
_READ_NUMBERS = {"print", "format", "max", "min", "float", "int", "str", "info", "debug"}
_METERS = {"update", "add", "add_batch"}


@dataclass(frozen=True, eq=False)
class Summed:
    """The loop goes through whole batches, and each of `figures` is added up over processes.

    Each of `entries` is appended to a list, each of `fed` feeds an object of the project, each of `replays` runs for
    each batch of all processes; those `listed` are any iterable. `lengths` count all batches, and
    `counts` those of all processes so far, which the loader knows; where it is `rebound`, a bar has its name.
    """

    loop: LoaderLoop
    figures: tuple[ast.expr, ...]
    entries: tuple[ast.Call, ...] = ()
    fed: tuple[ast.Expr, ...] = ()
    lengths: tuple[tuple[Module, ast.Call], ...] = ()
    counts: tuple[Count, ...] = ()
    rebound: bool = False
    replays: tuple[Replay, ...] = ()
    listed: frozenset[ast.expr] = frozenset()
    prepares: bool = True  # else its loader stays as it is, with the moves and the length of all
    trains_if: ast.Compare | None = None  # the loop trains where this is so, and evaluates where not


def judge_batches(
    roles: Roles,
    graph: CallGraph,
    loop: LoaderLoop,
    trains: frozenset[Function | None],
    prepares: bool = True,
    trains_if: ast.Compare | None = None,
) -> Summed | None:
    """How a loop is made right by whole batches, None where it adds nothing up; NotExact where that is not right.

    `trains` are the functions that train on the same loader.
    """
    return _Judge(roles, graph, loop, trains, prepares, trains_if).summed()


def is_cut_from(module: Module, value: ast.expr | None, moved: set[str]) -> bool:
    """`y[1:]` where `y = y.to(device)` is above: a part of what was moved is where that is."""
    while isinstance(value, ast.Subscript):
        value = value.value
    variable = module.variable(value) if isinstance(value, ast.Name) and value.id in moved else None
    if variable is None:
        return False
    assert isinstance(value, ast.Name)
    return all(binding.kind == "assign" for binding in reaching(module, value))


@dataclass(frozen=True, eq=False)
class _State:
    """What is known above a statement."""

    lengths: tuple[int, ...]
    replays: list[Replay]
    bound: frozenset[str]
    ran: bool
    repeats: bool


@dataclass(eq=False)
class _Judge:
    roles: Roles
    graph: CallGraph
    loop: LoaderLoop
    trains: frozenset[Function | None]
    prepares: bool
    trains_if: ast.Compare | None

    def __post_init__(self) -> None:
        roles, graph, loop = self.roles, self.graph, self.loop
        self.module = loop.module
        self.counting = Counter(loop.module, loop.statement)
        self.counter = self.counting.name
        self.shown = Shown(roles, loop, self.counter)
        self.quiet = Quiet(roles, graph)
        self.begins = Beginnings(loop)
        self.bound = _names(loop.statement.target)  # by now, in this round
        self.assigned = self._assigned()
        self.fresh = self._fresh()
        self.sums = {
            unparse(node.target)
            for node in walk(loop.statement)
            if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Name)
        }
        self.grows = self._grows()
        self.figures: list[ast.expr] = []
        self.entries: list[ast.Call] = []
        self.fed: list[ast.Expr] = []
        self.listed: list[ast.expr] = []
        self.replays: list[Replay] = []
        self.trained = self.trains_if is None  # by now, in this round, if it does
        self.repeats = False  # in a loop inside of a round: what comes in order would come in another
        variable = loop.module.variable(loop.loader)
        graphs = variable is not None and collates_graphs(graph, variable)
        if not pads_batches(graph, loop.module, loop.loader):
            self.quiet.batch = _names(loop.statement.target)
        self.replayed = Replayed(roles, self.quiet, loop, graphs, self.prepares, self.shown.nodes)

    def summed(self) -> Summed | None:
        loop = self.loop.statement
        if loop.orelse or isinstance(loop, ast.AsyncFor):
            raise NotExact("the loop has an `else`", loop)
        if not self.module.holds(loop.iter, self.loop.loader) and not self._has_bar_of_its_own():
            raise NotExact("its loader is wrapped before the loop", loop)
        self._block(loop.body)
        if not self.quiet.ran:
            raise NotExact("the model is not called in the loop itself", loop)
        if not (self.figures or self.entries or self.fed or self.replays):
            return None
        if self.trains_if is not None:
            self._check_phases()
        self.shown.check_bars()
        counts = tuple(self.counting.counts(self.shown.nodes))
        check_after(self.module, loop, {self.counter, *self._only_replayed()})
        lengths = tuple(self._lengths()) if self.prepares else ()
        held = self.module.statement(self.loop.loader)
        rebound = held is not loop and unparse(self.loop.loader) in _names(held)  # `loader = tqdm(loader)`
        if counts and any(replay.leaves for replay in self.replays):
            raise NotExact("the loop's counter takes part in it", counts[0][0])
        known = not rebound or self._is_behind_bar() if self.prepares else not rebound and self._may_be_asked(counts)
        if counts and not known:
            raise NotExact("the loop's counter takes part in it", counts[0][0])
        figures, entries, fed = tuple(self.figures), tuple(self.entries), tuple(self.fed)
        replays, listed = tuple(self.replays), frozenset(self.listed)
        kind = self.prepares, self.trains_if
        return Summed(self.loop, figures, entries, fed, lengths, counts, rebound, replays, listed, *kind)

    def _may_be_asked(self, counts: tuple[Count, ...]) -> bool:
        """Whether the loader itself, which is not prepared, tells how many batches there were, once the loop is over."""
        over = all(not self.module.holds(self.loop.statement, node) for node, _ in counts)
        return over and has_length(self.graph, self.module, self.loop.loader)

    def _check_phases(self) -> None:
        """Where a loop trains as well, it may add up; what goes by the number of batches has that of a shard then."""
        loader = self.loop.loader
        if self.entries or self.fed or self.replays or not isinstance(loader, ast.Subscript):
            raise NotExact(_MORE, self.loop.statement)
        kept = {*chain(self.graph, self.module.variable(loader.value))}
        for module in self.roles.project.modules:
            for length in (call for call in module.walk(module.tree, ast.Call) if is_length(call)):
                asked = length.args[0].value if isinstance(length.args[0], ast.Subscript) else None
                if asked is not None and module.variable(asked) in kept and not self.shown.counts_rounds(length):
                    raise NotExact("the number of its batches is asked for", length)

    def _has_bar_of_its_own(self) -> bool:
        """`bar = tqdm(loader)` above the loop, which nothing else goes over; it may take the loader's name."""
        bound = wrapped(self.module, self.loop.statement)
        if len(bound) != 1 or bound[0].kind not in ("assign", "with"):
            return False
        variable = self.module.variable(bound[0].target)
        reads = self.module.reads(variable)
        others = [n for n in reads if not self.module.holds(self.loop.statement.iter, n)]
        others = [n for n in others if bound[0] in reaching(self.module, n)]
        held = self.module.holds(bound[0].statement, self.loop.loader)
        return held and all(isinstance(self.module.parents[n], ast.Attribute) for n in others)

    def _is_behind_bar(self) -> bool:
        """Whether a bar of tqdm goes over the loader itself, which is then the bar's `iterable`."""
        around = self.module.parents[self.loop.loader]
        return (
            isinstance(around, ast.Call)
            and around.args[:1] == [self.loop.loader]
            and (self.module.qualified(around.func) or "").partition(".")[0] == "tqdm"
        )

    # ---- what a round does

    def _block(self, statements: list[ast.stmt], every: bool = True) -> None:
        """Statements one after another; those that are not sums are replayed, if all processes come to them."""
        states: dict[int, _State] = {}
        place = 0
        while place < len(statements):
            states[place] = self._state()
            try:
                self._statement(statements[place], every)
                place += 1
            except NotExact as reason:
                self._restore(states[place])
                if not every or self.repeats:
                    raise
                place = self._replay(statements, place, states, reason)

    def _replay(self, statements: list[ast.stmt], place: int, states: dict[int, _State], reason: NotExact) -> int:
        """Replays what is no sum, from there on or from what it goes on from; returns the place below."""
        for first in sorted(states, reverse=True):
            self._restore(states[first])
            try:
                replay = self._replayed_from(statements[first:], place - first + 1)
            except NotExact:
                continue
            if replay.leaves and not self._ends_all(replay):
                continue
            for later in [later for later in states if later > first]:
                del states[later]
            self.bound -= set(replay.names)  # below it they are the last batch's
            below = first + len(replay.statements)
            if first and self.replays and self.replays[-1].statements[-1] is statements[first - 1]:
                above = self.replays.pop()
                replay = Replay((*above.statements, *replay.statements), (*above.names, *replay.names))
            self.replays.append(replay)
            return below
        raise reason

    def _replayed_from(self, statements: list[ast.stmt], count: int) -> Replay:
        """The first statements, and all further ones that belong to them."""
        while True:
            replay = self.replayed.replay(statements[:count], self.bound, self.counter, first=True)
            further = [
                place
                for place, one in enumerate(statements[count:], count + 1)
                if self.replayed.belongs(one, replay, self.bound, self.shown.only_shows(one))
            ]
            if replay.leaves and count < len(statements):
                further = [len(statements)]
            if not further:
                return self.replayed.replay(statements[:count], self.bound, self.counter)
            count = further[-1]

    def _ends_all(self, replay: Replay) -> bool:
        """Whether a replay that may end the round, or the loop, is all that a round leaves behind, and stands at its end."""
        block = self.loop.statement.body
        while isinstance(block[-1], ast.With) and replay.statements[-1] is not block[-1]:
            block = block[-1].body
        return replay.statements[-1] is block[-1] and not (self.figures or self.entries or self.fed or self.replays)

    def _state(self) -> _State:
        lengths = len(self.figures), len(self.entries), len(self.fed), len(self.listed)
        return _State(lengths, list(self.replays), frozenset(self.bound), self.quiet.ran, self.repeats)

    def _restore(self, state: _State) -> None:
        for found, length in zip((self.figures, self.entries, self.fed, self.listed), state.lengths):
            del found[length:]  # type: ignore[attr-defined]
        self.replays, self.bound = list(state.replays), set(state.bound)
        self.quiet.ran, self.repeats = state.ran, state.repeats

    def _only_replayed(self) -> set[str]:
        """Names that only replayed statements bind: after the loop they are what they were in the original."""
        inside = {node for replay in self.replays for one in replay.statements for node in walk(one)}
        stored = [
            node for node in walk(self.loop.statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        return {node.id for node in stored if node in inside} - {node.id for node in stored if node not in inside}

    def _statement(self, statement: ast.stmt, every: bool = True) -> None:
        """`every` tells whether all processes come here in every round."""
        if self.shown.only_shows(statement) or self._sets_mode(statement) or self._only_trains(statement):
            return
        for node in walk(statement) if not isinstance(statement, ast.With) else ():
            if isinstance(node, ast.Continue | ast.Break):
                ends = self.module.innermost(node) is self.loop.statement
                early = "a batch may be left out, or the loop may end early"
                raise NotExact(early if ends else "a loop inside leaves out what it adds up, or ends early", node)
            if isinstance(node, ast.Try | ast.While | ast.Return):
                raise NotExact("a batch may be left out, or the loop may end early", node)
        if isinstance(statement, ast.With):
            for item in statement.items:
                self._reads(item.context_expr)
                self.bound |= _names(item.optional_vars) if item.optional_vars is not None else set()
            self._block(statement.body, every)
        elif isinstance(statement, ast.If):
            self._branches(statement, every)
        elif isinstance(statement, ast.For):
            self._inner(statement, every)
        elif (assigned := assignment_of(statement)) is not None:
            self._assign(assigned, every)
        elif isinstance(statement, ast.AugAssign):
            self._augment(statement, every)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement, statement.value, every)
        elif isinstance(statement, ast.Assert | ast.Raise):  # which ends the run of all processes
            if any(isinstance(above, ast.Try) for above in self.module.ancestors(statement)):
                raise NotExact(_MORE, statement)
        elif isinstance(statement, ast.Delete):
            if not {root_of(target) for target in statement.targets} <= self.bound:
                raise NotExact(_MORE, statement)
        elif not isinstance(statement, ast.Pass):
            raise NotExact(_MORE, statement)

    def _only_trains(self, statement: ast.stmt) -> bool:
        """Whether a statement runs where the loop trains, and binds nothing."""
        if self.trains_if is None or not isinstance(statement, ast.If) or statement.orelse:
            return False
        if unparse(told(self.module, statement.test)) != unparse(self.trains_if):
            return False
        self.trained |= any(isinstance(one, ast.Expr) and calls_method(one.value, "backward") for one in statement.body)
        calls = ast.Expr, ast.If, ast.Pass
        return all(isinstance(n, calls) for n in walk(statement) if isinstance(n, ast.stmt)) and not any(
            unparse(n.func.value) in self.grows
            for n in walk(statement)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        )

    def _branches(self, statement: ast.If, every: bool) -> None:
        self._reads(statement.test)
        every = every and self._is_fixed(statement.test)
        before, after = set(self.bound), []
        for branch in (statement.body, statement.orelse):
            self.bound = set(before)
            self._block(branch, every)
            after.append(self.bound)
        self.bound = after[0] & after[1]

    def _inner(self, statement: ast.For, every: bool) -> None:
        self._reads(statement.iter)
        every = every and self._is_fixed(statement.iter)
        before, repeats = set(self.bound), self.repeats
        self.bound |= _names(statement.target)
        self.repeats = True
        self._block([*statement.body, *statement.orelse], every)
        self.bound, self.repeats = before, repeats

    def _assign(self, statement: ast.Assign, every: bool) -> None:
        target = statement.targets[0]
        if len(statement.targets) == 1 and (added := _added_to(target, statement.value)) is not None:
            if root_of(target) not in self.bound:
                self._figure(target, added, every)
                return
        self._reads(statement.value)
        for one in statement.targets:
            for part in walk(one):
                if isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(part.ctx, ast.Load):
                    if root_of(part) not in self.bound:
                        raise NotExact(stored_in(part), statement)
                    self._reads(part)
            self.bound |= _names(one)

    def _augment(self, statement: ast.AugAssign, every: bool) -> None:
        if root_of(statement.target) in self.bound:
            self._reads(statement.value)
            return
        if not isinstance(statement.op, ast.Add):
            raise NotExact("the figure is not a sum", statement)
        if isinstance(statement.target, ast.Subscript) and not self._is_fixed(statement.target.slice):
            raise NotExact("results are stored by position", statement)
        self._figure(statement.target, statement.value, every)

    def _figure(self, target: ast.expr, value: ast.expr, every: bool, extends: bool = False) -> None:
        if not self.trained:
            raise NotExact("it adds up before it trains", target)
        self._reads(value)
        self._comes(value, every)
        held = self.begins.kind(target)
        if held is None or (held is list and not self._is_list(value) and not extends):
            raise NotExact(f"it is not known what `{unparse(target)}` holds", target)
        if held is list:
            self._in_order(target, value)
            if extends and self.replayed.is_unmoved(value):
                raise NotExact(f"`{unparse(value)}` stays where its loader leaves it", value)
            self.listed += [] if self._is_list(value) else [value]
        self.figures.append(value)

    def _in_order(self, target: ast.expr, node: ast.AST) -> None:
        """NotExact where a round adds to a list, or feeds an object, more than once: the order would be another one."""
        if self.repeats or self.grows.count(unparse(target)) > 1:
            raise NotExact(f"`{unparse(target)}` is added to several times for each batch", node)

    def _is_list(self, value: ast.expr) -> bool:
        """Whether a value is a list by what it is written as, here or where this round bound it to a name."""
        variable = self.module.variable(value) if isinstance(value, ast.Name) and value.id in self.bound else None
        if variable is None:
            return is_list(value)
        held = reaching(self.module, value)
        return bool(held) and all(
            b.kind == "assign" and not b.path and b.value is not None and is_list(b.value) for b in held
        )

    def _call(self, statement: ast.Expr, call: ast.Call, every: bool) -> None:
        function = call.func
        if isinstance(function, ast.Attribute) and root_of(function.value) not in self.bound:
            entry = isinstance(function.value, ast.Subscript) and isinstance(function.value.slice, ast.Constant)
            simple = (entry or isinstance(function.value, ast.Name | ast.Attribute)) and not call.keywords
            starred = any(isinstance(argument, ast.Starred) for argument in call.args)
            one = simple and not starred and len(call.args) == 1
            if one and function.attr == "append":
                if self.begins.kind(function.value) is not list:
                    raise NotExact(f"it is not known what `{unparse(function.value)}` holds", call)
                self._reads(call.args[0])
                self._comes(call, every)
                self._in_order(function.value, call)
                self.entries.append(call)
                return
            if one and function.attr == "extend" and self.begins.kind(function.value) is list:
                self._figure(function.value, call.args[0], every, extends=True)
                return
            if (
                simple
                and not starred
                and function.attr in _METERS
                and call.args
                and self._is_of_project(call, function)
            ):
                if self.module.resolve("figure", self.module.scope(call)) is not None:
                    raise NotExact("the name `figure` is taken", call)
                for argument in call.args:
                    self._reads(argument)
                self._comes(call, every)
                self._in_order(function.value, call)
                self.fed.append(statement)
                return
        if isinstance(function, ast.Attribute) and (self.module.qualified(function) or "").startswith("torch.cuda."):
            return
        if isinstance(function, ast.Attribute) and unparse(function.value) in self.fresh:
            for argument in (*call.args, *[keyword.value for keyword in call.keywords]):
                self._reads(argument)
            return
        if not isinstance(function, ast.Attribute) or root_of(function.value) not in self.bound:
            if not self._sets_up(function):
                raise NotExact(_MORE, call)
            return
        self._reads(call)

    def _is_of_project(self, call: ast.Call, method: ast.Attribute) -> bool:
        """Whether what is fed is an object of a class in the project, by its own name or in `{"loss": Meter()}`."""
        if self.roles.target(self.module, call) is not None:
            return True
        held = [
            binding.value
            for binding in (
                self.module.bindings_of(method.value.value) if isinstance(method.value, ast.Subscript) else []
            )
        ]
        entries = [entry for value in held if isinstance(value, ast.Dict) for entry in value.values]
        made = [self.roles.target(self.module, entry) if isinstance(entry, ast.Call) else None for entry in entries]
        literal = all(isinstance(value, ast.Dict) for value in held)
        return literal and bool(made) and all(one is not None and isinstance(one.node, ast.ClassDef) for one in made)

    def _sets_mode(self, statement: ast.AST) -> bool:
        """`model = model.eval()`, which is the same model."""
        value = statement.value if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(value, ast.Call) or not self._sets_up(value.func):
            return False
        model = value.func.value  # type: ignore[attr-defined]
        is_model = bool(self.roles.role(self.module, model) & Role.MODEL)
        return is_model and [unparse(target) for target in statement.targets] == [unparse(model)]

    def _sets_up(self, function: ast.expr) -> bool:
        return isinstance(function, ast.Attribute) and function.attr in ("eval", "train", "zero_grad")

    def _comes(self, node: ast.AST, every: bool) -> None:
        if not every:
            raise NotExact("a condition or a loop on the batch decides what is added up", node)

    # ---- what is read

    def _reads(self, value: ast.expr) -> None:
        """What a figure is made of: this round's own values, and what does not change from batch to batch."""
        own = set(self.bound)
        for part in walk(value):
            if isinstance(part, ast.comprehension):
                own |= _names(part.target)
            if isinstance(part, ast.Lambda):
                own |= {argument.arg for argument in part.args.args}
        self.quiet.check(self.module, value, own)
        for node in walk(value):
            if isinstance(node, ast.Attribute | ast.Subscript) and unparse(node) in self.sums:
                raise NotExact(f"`{unparse(node)}` goes on from batch to batch", node)
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if node.id == self.counter:
                raise NotExact("the loop's counter takes part in it", node)
            if node.id in self.assigned and node.id not in own:
                raise NotExact(f"`{node.id}` goes on from batch to batch", node)

    def _is_fixed(self, node: ast.expr) -> bool:
        names = {n.id for n in walk(node) if isinstance(n, ast.Name)}
        return names.isdisjoint(self.bound | self.assigned)

    def _assigned(self) -> set[str]:
        """Every name that the loop binds, adds to or collects in, but for clocks."""
        found: set[str] = set()
        for node in walk(self.loop.statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found |= set() if self._sets_mode(self.module.parents[node]) else {node.id}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
                *_METERS, "append", "extend",
            ):  # fmt: skip
                found.add(root_of(node.func.value))
        return found - {"self", *self.shown.clocks}

    def _grows(self) -> list[str]:
        """What the loop adds to, as often as it does."""
        found: list[str] = []
        for node in walk(self.loop.statement):
            if isinstance(node, ast.AugAssign):
                found.append(unparse(node.target))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found += [unparse(node.func.value)] if node.func.attr in (*_METERS, "append", "extend") else []
        return found

    def _fresh(self) -> set[str]:
        """Names that hold a list or dictionary of this round's own: what goes into it is gone with the round."""
        bound: dict[str, list[ast.expr]] = {}
        for node in walk(self.loop.statement):
            if isinstance(node, ast.Assign):
                for name in (name for target in node.targets for name in _names(target)):
                    bound.setdefault(name, []).append(node.value)
        made = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
        return {name for name, values in bound.items() if all(isinstance(value, made) for value in values)}

    # ---- the number of batches

    def _lengths(self) -> list[tuple[Module, ast.Call]]:
        """Each `len(loader)` that stands for all batches; those that are only shown count this process's."""
        variable = self.module.variable(self.loop.loader)
        own = set(chain(self.graph, variable)) if variable is not None else set()
        found: list[tuple[Module, ast.Call]] = []
        for module in self.roles.project.modules:
            for node in module.walk(module.tree, ast.Call):
                if not is_length(node):
                    continue
                held = module.variable(node.args[0])
                if held is None or own.isdisjoint(chain(self.graph, held)):
                    continue
                if module is self.module and self.shown.counts_rounds(node) and not self._divides(module, node):
                    continue
                function = module.scope(node).function
                if function in self.trains and (
                    function is not self.loop.function or not self._is_for_figures(module, node)
                ):
                    continue  # a process trains on its own batches
                around = module.parents[node]
                shows = isinstance(around, ast.Call) and only_shows(self.roles, module, around)
                if shows and any(isinstance(above, ast.For) for above in module.ancestors(node)):
                    continue  # how far a process will go, in another loop
                if not (shows or self._divides(module, node) or self._is_number(module, node)):
                    raise NotExact("the number of its batches is asked for", node)
                found.append((module, node))
        return found

    def _is_for_figures(self, module: Module, length: ast.AST) -> bool:
        """Whether a figure of this loop is divided by a length, beside a training on the same loader."""
        around = module.parents[length]
        if isinstance(around, ast.Assign):  # `steps = len(loader)`
            variables = [module.variable(target) for target in around.targets]
            reads = [node for variable in variables if variable is not None for node in module.reads(variable)]
            ours = [self._is_for_figures(module, node) for node in reads]
            if any(ours) and not all(ours):
                raise NotExact("the number of its batches is asked for", length)
            return any(ours)
        match around:
            case ast.BinOp(left=figure, op=ast.Div(), right=by) | ast.AugAssign(target=figure, op=ast.Div(), value=by):
                names = [part for part in walk(figure) if isinstance(part, ast.Name)]
                bound = [binding for name in names for binding in reaching(module, name)]
                return by is length and any(module.holds(self.loop.statement, each.statement) for each in bound)
        return False

    def _divides(self, module: Module, length: ast.Call) -> bool:
        """`total / len(loader)`, `total /= len(loader)`."""
        parent = module.parents[length]
        if isinstance(parent, ast.BinOp):
            return parent.right is length and isinstance(parent.op, ast.Div) and not self._progress(parent.left)
        return isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Div)

    def _is_number(self, module: Module, length: ast.Call) -> bool:
        """`n = len(loader)`, `max(len(loader), 1)`, `print(len(loader))`: the number of batches, and no loop goes by it."""
        parent = module.parents[length]
        if isinstance(parent, ast.Call):
            return getattr(parent.func, "id", getattr(parent.func, "attr", "")) in _READ_NUMBERS
        return isinstance(parent, ast.Assign | ast.BinOp | ast.Compare | ast.FormattedValue | ast.Tuple)

    def _progress(self, node: ast.expr) -> bool:
        return any(isinstance(n, ast.Name) and n.id == self.counter for n in walk(node))


def _added_to(target: ast.expr, value: ast.expr) -> ast.expr | None:
    """`new` of `total = total + new`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(target, ast.Name | ast.Attribute):
        for old, new in ((value.left, value.right), (value.right, value.left)):
            if unparse(old) == unparse(target):
                return new
    return None


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
