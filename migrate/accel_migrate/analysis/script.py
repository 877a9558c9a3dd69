"""The facts that rules read: each training of a project, and all that more than one rule must agree on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from accel_migrate.analysis.attributes import own_attributes
from accel_migrate.analysis.batches import Batches
from accel_migrate.analysis.carried import Carrier
from accel_migrate.analysis.constructions import is_foreign_loader
from accel_migrate.analysis.devices import DeviceDefinition, Move, check_later, device_definitions, moves_in
from accel_migrate.analysis.distribution import find_distribution, with_evaluations_on_main
from accel_migrate.analysis.doubts import check_doubts
from accel_migrate.analysis.evaluation import Gather, Whole, judge
from accel_migrate.analysis.given import GivenDevice, find_given, texts_of
from accel_migrate.analysis.homes import Built, NoHome, Place, chain, choose_home, find_place, is_root
from accel_migrate.analysis.loops import Backward, CallGraph, LoaderLoop, backward_calls, loader_loops, variables_in
from accel_migrate.analysis.needless import sort_moves
from accel_migrate.analysis.obstacles import check as check_obstacles
from accel_migrate.analysis.obstacles import hidden_backwards
from accel_migrate.analysis.phases import evaluating_calls, kept_whole
from accel_migrate.analysis.pieces import Distribution
from accel_migrate.analysis.precision import Precision, find_precision, with_argument
from accel_migrate.analysis.project import Project
from accel_migrate.analysis.reach import NAME, Reach, creation_scope, find_reach
from accel_migrate.analysis.remains import (
    carried_settings,
    carried_timeout,
    names_device,
    passed_instead,
    rank_parameters,
    through_trainer,
    tidied,
    with_unwrapping,
)
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Function, Module, Scope, Variable
from accel_migrate.analysis.starts import Start, after_names, device_is_needed, find_start, printing, put_off
from accel_migrate.analysis.steppers import wrapped_optimizer
from accel_migrate.analysis.storage import Storage, find_storage
from accel_migrate.analysis.timing import Timing, find_timing
from accel_migrate.analysis.updates import caller_not_given, updated_by_hand, why_no_update


@dataclass(frozen=True)
class Refusal:
    """Why a training loop is left as it was."""

    module: Module
    line: int
    reason: str


@dataclass(frozen=True, eq=False)
class Training:
    """One set of models that is trained together, with its loops; migrated whole or not at all."""

    index: int
    home: Scope
    place: Place
    prepared: tuple[Built, ...]
    aliases: frozenset[Variable]  # every variable, in any scope, that holds a prepared object
    backwards: tuple[Backward, ...]
    loops: tuple[LoaderLoop, ...]
    evaluations: tuple[Gather | Whole, ...]
    dropped: tuple[Move, ...]  # moves that the prepared objects make needless
    kept: tuple[Move, ...]
    device: DeviceDefinition | None  # what decides on the device, where the Accelerator can be made
    creation: Scope
    reach: Reach
    modules: tuple[Module, ...]
    start: Start  # where the Accelerator is made
    prints: tuple[tuple[Module, ast.Call], ...]  # those that should print once
    needs_device: bool  # whether the device's variable is still read after migration
    device_texts: tuple[tuple[Module, ast.expr], ...]  # where the device is asked for by name
    given: GivenDevice | None  # a device from outside, where none is decided on in sight
    model_attributes: tuple[tuple[Module, ast.Attribute], ...]  # that a wrapped model does not have
    timing: Timing
    storage: Storage
    precision: Precision
    distribution: Distribution
    settings: tuple[tuple[str, str], ...]  # of DistributedDataParallel
    waiting: tuple[tuple[str, str], ...]  # of init_process_group
    rebound: tuple[str, ...]  # what a spawned function was told, now asked of the Accelerator
    gone: frozenset[ast.AST]  # expressions that other rules take away: nothing inside them is edited
    makes_accelerator: bool = True  # another training in the same scope may have made it

    def accelerator(self, module: Module, node: ast.AST) -> str | None:
        """How to write the Accelerator at a node."""
        return self.reach.spelled(module, node)

    def ready(self, module: Module, node: ast.AST) -> str | None:
        """How to write the Accelerator at a node that runs once it is made; None before, and out of reach."""
        spelled = self.reach.spelled(module, node)
        if spelled is None or self.timing.after_prepare(module, node):
            return spelled
        function = module.scope(node).function
        if function in self.reach.parameters:
            return spelled
        beside = module is self.start.module and module.scope(node).function is self._makes
        below = getattr(node, "lineno", 0) > self.start.statement.lineno - (not self.start.at_prepare)
        return spelled if beside and below else None

    @property
    def _makes(self) -> Function | None:
        return self.start.module.scope(self.start.statement).function

    def shares(self, loop: LoaderLoop) -> bool:
        """Whether every loader that a loop reads is shared out, so that this process sees a part of its data."""
        whole = any(isinstance(e, Whole) and e.loop is loop for e in self.evaluations)
        return not whole and self.holds(loop.module.variable(loop.loader))

    def holds(self, variable: Variable | None) -> bool:
        return variable is not None and variable in self.aliases


@dataclass(frozen=True, eq=False)
class Script:
    project: Project
    roles: Roles
    graph: CallGraph
    trainings: tuple[Training, ...]
    refusals: tuple[Refusal, ...]
    backwards: tuple[Backward, ...]


def read(modules: Iterable[Module], keep_device: bool = False) -> Script:
    """Understand the files of a project together; `keep_device` leaves every move where it is."""
    project = Project(modules)
    roles = Roles(project)
    graph = CallGraph(roles)
    backwards = backward_calls(roles)
    loops = loader_loops(roles, graph, backwards)
    trainings: list[Training] = []
    refusals: list[Refusal] = []
    for index, group in enumerate(_groups(roles, graph, backwards)):
        first = group.backwards[0]
        try:
            trainings += [
                _Reader(roles, own_graph, group, loops, index, keep_device).training()
                for own_graph in _entries(roles, graph, group)
            ]
        except NoHome as trouble:
            refusals.append(Refusal(trouble_module(trouble, first), trouble.line, str(trouble)))
    refusals += [
        Refusal(module, call.lineno, reason) for module in project.modules for call, reason in hidden_backwards(module)
    ]
    return Script(project, roles, graph, _made_once(trainings), tuple(refusals), tuple(backwards))


def _entries(roles: Roles, graph: CallGraph, group: _Group) -> list[CallGraph]:
    """The calls as each script sees them, when several scripts build their own objects for one training function."""
    optimizers = [variable for variable, role in group.variables.items() if role & Role.OPTIMIZER]
    built = {link.scope for variable in optimizers for link in chain(roles, graph, variable) if is_root(link)}
    if len(built) < 2 or any(scope.is_class for scope in built):
        return [graph]
    ordered = sorted(built, key=lambda scope: (str(scope.module.source.path), getattr(scope.node, "lineno", 0)))
    return [graph.as_seen_from(scope, [other for other in ordered if other is not scope]) for scope in ordered]


def _made_once(trainings: list[Training]) -> tuple[Training, ...]:
    """Trainings in one scope share the Accelerator that the first of them makes."""
    made: dict[Scope, Training] = {}
    for training in sorted(trainings, key=lambda t: t.start.statement.lineno):
        made.setdefault(training.creation, training)
    return tuple(
        training if made[training.creation] is training else replace(training, makes_accelerator=False)
        for training in trainings
    )


def trouble_module(trouble: NoHome, first: Backward) -> Module:
    return trouble.module or first.module


@dataclass(eq=False)
class _Group:
    backwards: list[Backward]
    variables: dict[Variable, Role]


def _groups(roles: Roles, graph: CallGraph, backwards: list[Backward]) -> list[_Group]:
    """Backward passes that share a model or an optimizer belong together."""
    groups: list[_Group] = []
    for backward in backwards:
        used = _trained_variables(roles, graph, backward)
        roots = {link for variable in used for link in chain(roles, graph, variable)}
        joined = _Group([backward], dict(used))
        rest = []
        for group in groups:
            theirs = {link for variable in group.variables for link in chain(roles, graph, variable)}
            if roots & theirs:
                joined = _Group(group.backwards + joined.backwards, {**group.variables, **joined.variables})
                roots |= theirs
            else:
                rest.append(group)
        groups = [*rest, joined]
    return groups


def _trained_variables(roles: Roles, graph: CallGraph, backward: Backward) -> dict[Variable, Role]:
    """Models and optimizers in the function of a backward pass, or in those that call it."""
    found: dict[Variable, Role] = {}
    functions: list[Function | None] = [backward.function]
    seen = set(functions)
    while functions:
        function = functions.pop(0)
        module = backward.module if function is None else _module_of(roles, function)
        node: ast.AST = function if function is not None else module.tree
        for variable, expression in variables_in(module, node):
            role = roles.of(variable) & (Role.MODEL | Role.OPTIMIZER)
            if role and _is_trained(roles, module, variable, expression, function):
                found[variable] = role
            elif not role and (inner := wrapped_optimizer(roles, module, variable)) is not None:
                found[inner] = Role.OPTIMIZER
        if any(role & Role.OPTIMIZER for role in found.values()):
            break
        for caller, call in graph.sites.get(function, ()) if function is not None else ():
            outer = caller.scope(call).function
            if outer not in seen:
                seen.add(outer)
                functions.append(outer)
    return found


def _module_of(roles: Roles, function: Function) -> Module:
    return next(module for module in roles.project.modules if function in module.functions)


def _is_trained(
    roles: Roles, module: Module, variable: Variable, expression: ast.expr, function: Function | None
) -> bool:
    scope = module.scope(expression)
    if function is None and scope.function is not None:
        return False  # module level means module level
    owner = scope.owner_class
    if owner is not None and variable.scope is owner:
        bases = [ast.unparse(b) for b in owner.node.bases]  # type: ignore[attr-defined]
        if any(base.endswith("Module") for base in bases):
            return False  # layers inside a model
    if roles.of(variable) & Role.OPTIMIZER:
        return True
    parent = module.parents.get(expression)
    if isinstance(parent, ast.Call):
        return parent.func is expression or expression in parent.args
    if isinstance(parent, ast.keyword):
        return True
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "parameters",
        "train",
        "zero_grad",
        "forward",
        "named_parameters",
    )


class _Reader:
    """Works out one training, step by step; raises NoHome where it cannot be migrated."""

    def __init__(
        self, roles: Roles, graph: CallGraph, group: _Group, loops: list[LoaderLoop], index: int, keep_device: bool
    ) -> None:
        self.keep_device = keep_device
        self.roles = roles
        self.graph = graph
        self.group = group
        self.all_loops = loops
        self.index = index

    def training(self) -> Training:
        first = self.group.backwards[0]
        trained = self.group.variables
        optimizers = [v for v, role in trained.items() if role & Role.OPTIMIZER]
        optimized = self._optimized_models(optimizers)
        models = [v for v, role in trained.items() if role & Role.MODEL and self._is_optimized(v, optimized)]
        if not optimizers:
            models = [variable for b in self.group.backwards for variable in updated_by_hand(self.roles, b)]
        if not models:
            raise NoHome(why_no_update(self.roles, self.graph, first), first.call.lineno)
        check_doubts(self.roles, self.graph, self.group.backwards, optimizers, models)
        loops = self._own_loops(models)
        evaluations = self._evaluations(loops)
        near = self._files(models + optimizers, loops)
        check_obstacles(near)
        distribution = find_distribution(self.roles, self.graph, near, loops, evaluations)
        evaluations = with_evaluations_on_main(distribution, self.graph, evaluations)
        loaders = self._loaders(loops, evaluations)
        evaluating = evaluating_calls(self.roles, self.graph, self.group.backwards, loops)
        whole = kept_whole(self.roles, self.graph, evaluating)
        evaluations += [Whole(e.loop, "one loop trains and evaluates", e.call.lineno, (e.call,)) for e in evaluating]
        schedulers = self._per_batch_schedulers(optimizers, loops)
        used = [*models, *optimizers, *schedulers, *loaders]
        chains = [
            [link for link in chain(self.roles, self.graph, variable) if link not in whole]
            for variable in dict.fromkeys(used)
        ]
        home = choose_home(chains)
        if home is None:
            raise NoHome("model, optimizer and data are built in different places", first.call.lineno)
        prepared = self._prepared(home, chains)
        self._check_caller(home, prepared)
        aliases = frozenset(link for links in chains for link in links)
        uses = self._uses(home, loops, loaders)
        place = find_place(home, list(prepared), uses, self._made_of_optimizers(home))
        self._check_iterators(place, loaders)
        precision = find_precision(self.roles, self.group.backwards, loops)
        used_in = [place.module, *[b.module for b in self.group.backwards], *[loop.module for loop in loops]]
        modules = tuple(dict.fromkeys([*used_in, *precision.modules(), *distribution.modules()]))
        distribution = with_unwrapping(distribution, modules, home, place, aliases)
        if home.is_class:
            distribution = through_trainer(self.roles, distribution, home)
        timing = find_timing(self.roles, self.graph, home, place)
        attributes = tuple(own_attributes(self.roles, self.graph, modules, aliases, timing))
        storage = find_storage(self.roles, self.graph, timing, aliases)
        shared = frozenset(link for loader in loaders for link in chain(self.roles, self.graph, loader)) - whole
        dropped, kept = sort_moves(self.roles, self.graph, modules, aliases, shared, place)
        if self.keep_device:
            dropped, kept = [], [*dropped, *kept]
        device = self._device(home, kept + dropped, distribution)
        by_class = home if home.is_class else None
        needs: list[tuple[Module, ast.AST]] = [(b.module, b.call) for b in self.group.backwards]
        needs += [(place.module, place.after)]
        needs += [(e.loop.module, e.after) for e in evaluations if isinstance(e, Gather)]
        needs += [(m.module, m.call) for m in kept if not names_device(m, distribution)]
        needs += [(piece.module, piece.node) for piece in distribution.pieces if piece.needs_accelerator]
        needs += storage.needs
        needs += [(region.module, region.call) for region in precision.regions]
        needs += precision.scaling.unscaled
        if by_class is not None:
            creation = home
        elif device is not None:
            creation = device.scope
        else:
            creation = creation_scope(self.roles, self.graph, home, needs)
        if by_class is None:
            creation = self._above_all(creation, distribution)
        guarded = self._under_main_guard(creation, place if device is None else None, device)
        reach = find_reach(
            self.roles,
            self.graph,
            creation,
            by_class,
            needs,
            [*self._wishes(evaluations), *attributes],
            guarded,
            self.keep_device,
            {**rank_parameters(distribution, dropped, kept, self.graph), **precision.scaling.parameters},
        )
        modules = self._all_touched(modules, reach)
        self._check_names(modules, reach)
        own = device if device is not None and device.scope is creation else None
        moves = [] if device is not None or self.keep_device else dropped + kept
        renamed = [move for move in kept if not names_device(move, distribution)]
        moved = _gone([*dropped, *renamed], precision, distribution, reach) | storage.gone
        given = find_given(self.roles, self.graph, creation, moves, modules, moved, reach)
        start = find_start(self.roles, self.graph, creation, place, own, given, dropped, kept, reach, distribution)
        carrier = Carrier(self.graph, start.module, start.statement, {p.statement for p in distribution.pieces})
        told = with_argument(precision, carrier, own, start.cpu)
        later = put_off(start, own) if carrier.inlined else None
        if later is not None:
            start = later
            carrier = Carrier(
                self.graph, start.module, start.statement, carrier.ignored, own.statement if own else None
            )
            told = with_argument(precision, carrier, own, start.cpu)
        precision = told
        start = after_names(start, precision.argument)
        settings = carried_settings(distribution, carrier)
        waiting = carried_timeout(distribution, carrier)
        prints = printing(self.roles, self.graph, reach, start, modules, uses)
        once = tuple((m, call) for m, call in prints if not distribution.runs_on_main_only(m, call))
        passed = passed_instead(reach, self.graph)
        gone = _gone([*dropped, *renamed], precision, distribution, reach) | storage.gone | passed
        if device is not None:
            gone |= frozenset(device.module.walk(device.statement))
        texts = texts_of(self.roles, self.graph, device, modules, gone) if device is not None else ()
        distribution, rebound = tidied(distribution, gone, device, passed)
        rebound += given.rebound() if given is not None else ()
        needs_device = device is not None and device_is_needed(device, gone, reach, self.graph)
        return Training(
            self.index, home, place, prepared, storage.held, tuple(self.group.backwards), tuple(loops), tuple(evaluations),
            tuple(dropped), tuple(kept), device, creation, reach, modules,
            start, once, needs_device, texts, given, attributes,
            timing, storage, precision, distribution, settings, waiting, rebound, gone,
        )  # fmt: skip

    def _check_caller(self, home: Scope, prepared: tuple[Built, ...]) -> None:
        """A function that is handed everything may be called once for each epoch: prepare belongs where it is built."""
        if home.is_function and not self.graph.sites.get(home.node) and not any(is_root(b.variable) for b in prepared):  # type: ignore[call-overload]
            raise NoHome(caller_not_given(home.node), home.node.lineno, home.module)  # type: ignore[arg-type, attr-defined]

    def _all_touched(self, modules: tuple[Module, ...], reach: Reach) -> tuple[Module, ...]:
        """The files of the training, with those that define or call a function which is handed the Accelerator."""
        found = [*modules]
        for function, parameter in reach.parameters.items():
            found += [parameter.module, *[caller for caller, _ in self.graph.sites.get(function, ())]]
        return tuple(dict.fromkeys(found))

    def _files(self, variables: list[Variable], loops: list[LoaderLoop]) -> list[Module]:
        """The files in which these objects are built, handed on and used."""
        links = [link for variable in variables for link in chain(self.roles, self.graph, variable)]
        found = [b.module for b in self.group.backwards] + [loop.module for loop in loops]
        return list(dict.fromkeys([*found, *[link.scope.module for link in links]]))

    def _above_all(self, creation: Scope, distribution: Distribution) -> Scope:
        """The scope from which every place that asks for the Accelerator can be reached."""
        for piece in distribution.pieces:
            if not piece.needs_accelerator:
                continue
            function = piece.module.scope(piece.node).function
            if function is None:
                return piece.module.root
            reached = self.graph.reached_from(function, self.roles, piece.module)
            if function is not creation.node and creation.node in reached:
                creation = piece.module.functions[function]
        return creation

    # ---- what belongs to it

    def _made_of_optimizers(self, home: Scope) -> set[Variable]:
        """Objects at home that step an optimizer from within: `prepare` comes before they are made."""
        module = home.module
        names = [Variable(home, name) for name in home.bindings] if not home.is_class else []
        attributes = [variable for variable in module.attribute_bindings if variable.scope is home]
        return {v for v in [*names, *attributes] if wrapped_optimizer(self.roles, module, v) is not None}

    def _optimized_models(self, optimizers: list[Variable]) -> set[Variable]:
        """Models whose parameters these optimizers were built over."""
        found: set[Variable] = set()
        for optimizer in optimizers:
            for link in chain(self.roles, self.graph, optimizer):
                for binding in link.scope.module.bindings(link):
                    if binding.value is not None:
                        found |= self._models_in(link.scope.module, binding.value)
        return found

    def _models_in(self, module: Module, value: ast.expr, depth: int = 0) -> set[Variable]:
        """Models that an expression names, also through `params = [p for p in model.parameters() ...]`."""
        found: set[Variable] = set()
        for variable, _ in variables_in(module, value):
            if self.roles.of(variable) & Role.MODEL:
                found.update(chain(self.roles, self.graph, variable))
            elif depth < 2 and not self.roles.of(variable):
                for binding in module.bindings(variable):
                    if binding.value is not None and binding.kind == "assign":
                        found |= self._models_in(module, binding.value, depth + 1)
        return found

    def _is_optimized(self, model: Variable, optimized: set[Variable]) -> bool:
        return not optimized or any(link in optimized for link in chain(self.roles, self.graph, model))

    def _own_loops(self, models: list[Variable]) -> list[LoaderLoop]:
        """The loader loops in which these models run, here or in what the loop calls."""
        own = {link for model in models for link in chain(self.roles, self.graph, model)}

        def runs(module: Module, node: ast.AST) -> bool:
            return any(
                self.roles.of(variable) & Role.MODEL
                and any(link in own for link in chain(self.roles, self.graph, variable))
                for variable, _ in variables_in(module, node)
            )

        mine = {backward.call for backward in self.group.backwards}
        found = []
        for loop in self.all_loops:
            mentions = runs(loop.module, loop.statement) or any(
                runs(_module_of(self.roles, function), function)
                for function in self.graph.reached_from(loop.statement, self.roles, loop.module)
            )
            if mentions or any(child in mine for child in loop.module.walk(loop.statement)):
                found.append(loop)
        # An epoch loop written over one loader may hold the loop over another: the inner ones decide.
        return found

    def _evaluations(self, loops: list[LoaderLoop]) -> list[Gather | Whole]:
        """How each evaluation is made right. A loader that one loop must read whole is read whole by all."""
        moves = {module: moves_in(self.roles, module) for module in {loop.module for loop in loops}}
        judged = [
            judge(self.roles, loop, moves[loop.module])
            if sum(other.statement is loop.statement for other in loops) == 1
            else Whole(loop, "several loaders are read side by side", loop.statement.lineno)
            for loop in loops
            if not loop.trains
        ]
        whole = {link for e in judged if isinstance(e, Whole) for link in self._sources(e.loop)}
        trained = {link for loop in loops if loop.trains for link in self._sources(loop)}
        kept: list[Gather | Whole] = []
        for evaluation in judged:
            shared = [link for link in self._sources(evaluation.loop) if is_root(link)]
            if isinstance(evaluation, Gather) and any(link in whole - trained for link in shared):
                line = evaluation.loop.statement.lineno
                evaluation = Whole(evaluation.loop, "another loop reads the same loader whole", line)
            kept.append(evaluation)
        return kept

    def _sources(self, loop: LoaderLoop) -> list[Variable]:
        variable = loop.module.variable(loop.loader)
        return chain(self.roles, self.graph, variable) if variable is not None else []

    def _loaders(self, loops: list[LoaderLoop], evaluations: list[Gather | Whole]) -> list[Variable]:
        """The loaders to share out: those trained on, and those whose evaluation gathers."""
        whole = {id(e.loop) for e in evaluations if isinstance(e, Whole)}
        found: list[Variable] = []
        for loop in loops:
            variable = loop.module.variable(loop.loader)
            if variable is not None and id(loop) not in whole:
                if not is_foreign_loader(self.roles, self.graph, variable):
                    found.append(variable)
        return list(dict.fromkeys([*found, *self._read_by_hand()]))

    def _read_by_hand(self) -> list[Variable]:
        """Loaders whose batches a training loop asks for itself: `next(iterator)`."""
        batches = Batches(self.roles, self.graph)
        functions = {b.function for b in self.group.backwards if b.function is not None}
        calls = {b.call for b in self.group.backwards}
        found: list[Variable] = []
        for module in self.roles.project.modules:
            for call in module.calls:
                if isinstance(call.func, ast.Name) and call.func.id == "next":
                    around = [p for p in module.ancestors(call) if isinstance(p, ast.For | ast.While)]
                    if any(
                        any(child in calls for child in module.walk(loop))
                        or self.graph.reached_from(loop, self.roles, module) & functions
                        for loop in around
                    ):
                        found += batches.loaders(module, call) or ()
        return found

    def _per_batch_schedulers(self, optimizers: list[Variable], loops: list[LoaderLoop]) -> list[Variable]:
        """Schedulers stepped inside a loop over a training loader, without a metric."""
        found: list[Variable] = []
        for module in self.roles.project.modules:
            for call in module.calls:
                function = call.func
                if not isinstance(function, ast.Attribute) or function.attr != "step" or call.args or call.keywords:
                    continue
                variable = module.variable(function.value)
                if variable is None or not self.roles.of(variable) & Role.SCHEDULER:
                    continue
                if any(loop.trains and self._runs_in(loop, module, call) for loop in loops):
                    found.append(variable)
        return found

    def _runs_in(self, loop: LoaderLoop, module: Module, node: ast.AST) -> bool:
        if loop.module is module and any(parent is loop.statement for parent in module.ancestors(node)):
            return True
        function = module.scope(node).function
        return function is not None and function in self.graph.reached_from(loop.statement, self.roles, loop.module)

    def _prepared(self, home: Scope, chains: list[list[Variable]]) -> tuple[Built, ...]:
        order = (Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER)
        found: dict[Variable, Built] = {}
        for links in chains:
            for variable in links:
                if variable.scope is home and variable not in found:
                    role = next(role for role in order if self.roles.of(variable) & role)
                    found[variable] = Built(role, variable)

        def position(built: Built) -> tuple[int, int]:
            lines = [b.statement.lineno for b in home.module.bindings(built.variable) if b.kind != "parameter"]
            return order.index(built.role), min(lines, default=0)

        return tuple(sorted(found.values(), key=position))

    # ---- where things go

    def _uses(self, home: Scope, loops: list[LoaderLoop], loaders: list[Variable]) -> list[ast.stmt]:
        """Statements at home that start training or evaluation."""
        module = home.module
        functions = {b.function for b in self.group.backwards} | {loop.function for loop in loops}
        found: list[ast.stmt] = []
        for statement in (node for node in module.walk(home.node) if isinstance(node, ast.stmt)):
            if module.scope(statement) is not home or isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            if (
                any(loop.statement is statement for loop in loops)
                or any(b.module is module and module.statement(b.call) is statement for b in self.group.backwards)
                or self._starts_reading(module, statement, loaders)
            ):
                found.append(self._outermost_loop(module, statement))
            elif not isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
                if self.graph.reached_from(statement, self.roles, module) & (functions - {None, home.node}):
                    found.append(self._outermost_loop(module, statement))
        return sorted(dict.fromkeys(found), key=lambda s: s.lineno)

    def _starts_reading(self, module: Module, statement: ast.stmt, loaders: list[Variable]) -> bool:
        """`iterator = iter(loader)`: from here on the loader must be the prepared one."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        variable = module.variable(statement.value.args[0]) if statement.value.args else None
        if variable is None or not self.roles.role(module, statement.value) & Role.ITERATOR:
            return False
        return any(variable in chain(self.roles, self.graph, loader) for loader in loaders)

    def _check_iterators(self, place: Place, loaders: list[Variable]) -> None:
        """A trainer that starts to read where it is built would go on reading from the loader as it was."""
        module = place.module
        function = module.scope(place.after).function
        for statement in (node for node in module.walk(function or module.tree) if isinstance(node, ast.Assign)):
            if statement.lineno <= place.after.lineno and self._starts_reading(module, statement, loaders):
                raise NoHome(
                    f"`{ast.unparse(statement.targets[0])}` starts to read the loader before all is built that is "
                    "prepared with it; make it after the optimizer",
                    statement.lineno,
                    module,
                )

    def _outermost_loop(self, module: Module, statement: ast.stmt) -> ast.stmt:
        outermost = statement
        for parent in module.ancestors(statement):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                break
            if isinstance(parent, ast.For | ast.While) and not self._builds_inside(module, parent):
                outermost = parent
        return outermost

    def _builds_inside(self, module: Module, loop: ast.stmt) -> bool:
        """Whether an optimizer of this training is built in the body of a loop (a loop over folds, say)."""
        for variable, role in self.group.variables.items():
            if role & Role.OPTIMIZER:
                for link in chain(self.roles, self.graph, variable):
                    for binding in link.scope.module.bindings(link):
                        if any(parent is loop for parent in module.ancestors(binding.statement)):
                            return True
        return False

    def _device(self, home: Scope, moves: list[Move], distribution: Distribution) -> DeviceDefinition | None:
        """The definition of the device that this training's moves name."""
        named: dict[Variable, None] = {}
        for move in moves:
            if move.device is not None:
                variable = move.module.variable(move.device)
                if variable is not None:
                    named.update(dict.fromkeys(chain(self.roles, self.graph, variable)))
        found = []
        for module in self.roles.project.modules:
            found += [d for d in device_definitions(self.roles, module) if d.variable in named]
        as_text = {piece.statement for piece in distribution.pieces}
        kept_as_text = {d.variable for d in found if as_text.intersection((d.statement, *d.later)) and d.later}
        found = [d for d in found if d.variable not in kept_as_text]
        usable = [d for d in found if d.scope is home or self._above(home, d.scope) or d.scope.parent is None]
        if usable:
            check_later(usable[0])
        return usable[0] if usable else None

    def _above(self, home: Scope, scope: Scope) -> bool:
        """Whether the function of `scope` calls the home, directly or through others."""
        function = scope.function
        return function is not None and home.node in self.graph.reached_from(function, self.roles, scope.module)

    def _under_main_guard(self, creation: Scope, place: Place | None, device: DeviceDefinition | None) -> bool:
        if creation.parent is not None:
            return False
        statement = device.statement if device is not None else (place.after if place is not None else None)
        if statement is None:
            return False
        return any(
            isinstance(parent, ast.If) and "__name__" in ast.unparse(parent.test)
            for parent in creation.module.ancestors(statement)
        )

    def _wishes(self, evaluations: list[Gather | Whole]) -> list[tuple[Module, ast.AST]]:
        """Evaluation functions that print: once is enough."""
        return [
            (e.loop.module, e.loop.statement)
            for e in evaluations
            if e.loop.function is not None
            and any(isinstance(n, ast.Name) and n.id == "print" for n in e.loop.module.walk(e.loop.function))
        ]

    def _check_names(self, modules: tuple[Module, ...], reach: Reach) -> None:
        for module in modules:
            if NAME in module.root.bindings or any(NAME in scope.bindings for scope in module.functions.values()):
                raise NoHome("the name `accelerator` is taken in this file", 1)


def _gone(dropped: list[Move], precision: Precision, distribution: Distribution, reach: Reach) -> frozenset[ast.AST]:
    nodes: list[ast.AST] = [region.whole for region in precision.regions]
    for move in dropped:
        nodes += [*move.call.args, *[keyword.value for keyword in move.call.keywords]]
    nodes += precision.scaling.nodes()
    nodes += distribution.gone()
    nodes += [p.node for p in distribution.pieces if p.optional and reach.spelled(p.module, p.node) is not None]
    return frozenset(part for node in nodes for part in ast.walk(node))


def is_built(variable: Variable) -> bool:
    return is_root(variable)
