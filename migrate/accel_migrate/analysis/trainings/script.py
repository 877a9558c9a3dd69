"""Reads the files of a project into facts: each training with all that rules ask, or why it is left alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from accel_migrate.analysis.distribution.one_or_many import silenced_prints
from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.evaluation.by_batch import Summed
from accel_migrate.analysis.evaluation.evaluation import Gather, Whole
from accel_migrate.analysis.moves.cpu_only import check_built_here, cpu_only, names_gpu
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move, moves_in
from accel_migrate.analysis.placement.agreed_names import agreed_names, broadcast
from accel_migrate.analysis.placement.choices import Choice, choice_of
from accel_migrate.analysis.placement.handed import prepared_in_functions
from accel_migrate.analysis.placement.one_device import Tied
from accel_migrate.analysis.placement.outside_device import OutsideDevice, find_outside_device, texts_of
from accel_migrate.analysis.placement.reach import NAME, Reach, ReachFinder, creation_scope, is_idle
from accel_migrate.analysis.placement.respelling import Respelling
from accel_migrate.analysis.placement.starts import Start, StartFinder, after_names, device_is_needed, printing, put_off
from accel_migrate.analysis.precision.precision import Precision, find_precision, with_argument
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.processes.timing import Timing, find_timing, is_another
from accel_migrate.analysis.storage.about_files import only_writes
from accel_migrate.analysis.storage.attributes import Question, own_attributes
from accel_migrate.analysis.storage.prefixes import check_other_wrappers
from accel_migrate.analysis.storage.storage import Storage, find_storage, follows_prepare, handed_on
from accel_migrate.analysis.trainings import by_number
from accel_migrate.analysis.trainings.agreed import agreed
from accel_migrate.analysis.trainings.bookkeeping import (
    carried_settings,
    carried_timeout,
    move_parameters,
    names_device,
    passed_instead,
    rank_parameters,
    through_trainer,
    tidied,
    with_unwrapping,
)
from accel_migrate.analysis.trainings.decisions import Decision, DecisionFinder
from accel_migrate.analysis.trainings.groups import Group, entries, find_groups
from accel_migrate.analysis.trainings.obstacles import handed_away, hidden_backwards
from accel_migrate.analysis.trainings.one_process import bare_uses
from accel_migrate.analysis.trainings.participants import ParticipantFinder, Participants, is_share, only_prepared
from accel_migrate.analysis.trainings.phases import is_chosen
from accel_migrate.analysis.trainings.removed_moves import HostRead, sort_moves
from accel_migrate.analysis.trainings.setup import Setup, SetupFinder, find_device
from accel_migrate.analysis.trainings.shuffled import in_own_order
from accel_migrate.analysis.trainings.training import Again, Refusal, Script, Training
from accel_migrate.analysis.values.imported import idle_in, is_imported, loaded_with
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop, backward_calls, loader_loops
from accel_migrate.analysis.values.provenance import Built, Handed, NotMigrated, Place, Scattered, chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.errors import internal_error
from accel_migrate.facts import Facts
from accel_migrate.flow.idle import Unit, unit_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import all_arguments, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module, Scope, Variable
from accel_migrate.flow.sequence import comes_first
from accel_migrate.flow.star_imports import unknown_names


def read(
    modules: Iterable[Module],
    keep_device: bool = False,
    prints_once: bool = False,
    keeps: Callable[[Module, int], bool] = lambda module, line: False,
    facts: Facts | None = None,
    for_accelerate: bool = False,
    again: Mapping[int, Again] = MappingProxyType({}),
) -> Script:
    """Understand the files of a project together; `keep_device` leaves every move where it is, `keeps` those of a line.

    `for_accelerate`: on several processes its models are in a wrapper, and evaluations cannot go through whole batches.
    `again` are the trainings, by their
    index, that are read once more.
    """
    project = Program(modules)
    roles = Roles(project, facts)
    graph = CallGraph(roles)
    flow = RankFlow(graph)
    backwards = backward_calls(roles)
    loops = loader_loops(graph, backwards)
    trainings: list[Training] = []
    refusals: list[Refusal] = []
    for index, group in enumerate(find_groups(graph, backwards)):
        first = group.backwards[0]
        try:
            trainings += [
                _Reader(
                    roles,
                    own_graph,
                    flow,
                    group,
                    loops,
                    index,
                    keep_device,
                    prints_once,
                    keeps,
                    for_accelerate,
                    again.get(index, Again()),
                ).training()
                for own_graph in entries(graph, group)
            ]
        except NotMigrated as trouble:
            where = trouble.module or first.module
            lines = {backward.module: backward.call.lineno for backward in reversed(group.backwards)}
            if where in lines or any(roles.role(where, call) & Role.OPTIMIZER for call in where.calls):
                refusals.append(Refusal(where, trouble.line, str(trouble)))
            place = f"{where.source.path.name}:{trouble.line}"
            refusals += [Refusal(m, line, f"{trouble} ({place})") for m, line in lines.items() if m is not where]
        except Exception as error:  # whatever is strange about this loop, the others must go on
            refusals.append(Refusal(first.module, first.call.lineno, internal_error(error), error))
    trainings, alone = agreed(trainings, graph)
    refusals += [Refusal(b.module, b.call.lineno, reason) for training, reason in alone for b in training.backwards[:1]]
    for module in project.modules:
        hidden = [*hidden_backwards(roles, module)]
        if not hidden and not any(backward.module is module for backward in backwards):
            hidden += [*handed_away(roles, module)][:1]
        told = {(refusal.module, refusal.line) for refusal in refusals}
        refusals += [Refusal(module, c.lineno, reason) for c, reason in hidden if (module, c.lineno) not in told]
    return Script(project, roles, graph, _made_once(trainings), tuple(refusals), tuple(backwards))


def _made_once(trainings: list[Training]) -> tuple[Training, ...]:
    """Trainings in one scope share the Accelerator that the first of them makes."""
    made: dict[Scope, Training] = {}
    for training in trainings:
        first = made.setdefault(training.creation, training)
        if comes_first(training.start.module, training.start.statement, first.start.statement):
            made[training.creation] = training
    return tuple(
        training if made[training.creation] is training else replace(training, makes_accelerator=False)
        for training in trainings
    )


@dataclass(frozen=True, eq=False)
class _Findings:
    """What a training does by hand that the Accelerator does from now on."""

    modules: tuple[Module, ...]
    precision: Precision
    distribution: Distribution
    timing: Timing
    local: Locality
    decisions: tuple[Decision, ...]
    storage: Storage
    bare: tuple[tuple[Module, ast.expr], ...]
    attributes: tuple[Question, ...]
    dropped: list[Move]
    kept: list[Move]
    spared: tuple[Move, ...]
    unplaced: frozenset[Variable]
    fetched: tuple[HostRead, ...]
    device: DeviceDefinition | None

    @property
    def renamed(self) -> list[Move]:
        """Kept moves that name the device anew."""
        return [move for move in self.kept if not names_device(move, self.distribution)]

    @property
    def taken(self) -> frozenset[ast.AST]:
        """Expressions that rules take away, wherever the Accelerator is: nothing inside them is edited."""
        nodes: list[ast.AST] = [region.whole for region in self.precision.regions]
        for move in (*self.dropped, *self.renamed):
            nodes += all_arguments(move.call)
        nodes += self.precision.scaling.nodes()
        nodes += self.distribution.gone()
        return frozenset(part for node in nodes for part in walk(node)) | self.storage.gone

    def gone(self, reach: Reach) -> frozenset[ast.AST]:
        """Those, and what is replaced where the Accelerator can be had."""
        optional = [p for p in self.distribution.replacements if p.optional]
        replaced = [p.node for p in optional if reach.spelled(p.module, p.node) is not None]
        return self.taken | {part for node in replaced for part in walk(node)}


@dataclass(eq=False)
class _Reader:
    """Works out one training, step by step; raises NotMigrated where it cannot be migrated."""

    roles: Roles
    graph: CallGraph  # what the training's own files call; `seen` is all that is visible to the analysis
    flow: RankFlow
    group: Group
    loops: list[LoaderLoop]
    index: int
    keep_device: bool
    prints_once: bool
    keeps: Callable[[Module, int], bool]
    for_accelerate: bool
    again: Again

    def __post_init__(self) -> None:
        self.sharded: list[ast.stmt] = []  # the evaluations of the latest attempt that do not read their loader whole
        self.seen = self.graph
        self.handed: tuple[Handed, ...] = ()  # of the latest attempt that found no place for all
        self.in_functions = False  # whether those are prepared where they are known

    def training(self) -> Training:
        """All is prepared in one place if that can be, or else the loaders by the functions that alone know them."""
        try:
            return self._in_place()
        except NotMigrated as trouble:
            if not self.handed or self.for_accelerate:  # which prepares a loader anew each time that it is handed one
                raise
            self.in_functions = True
            try:
                return self._in_place()
            except Scattered:
                raise trouble from None

    def _in_place(self) -> Training:
        """A loader that is only evaluated on never stands in the way: where it would, nothing prepares it."""
        left: dict[ast.stmt, NotMigrated] = {
            loop.statement: NotMigrated(self.again.why, loop.statement.lineno) for loop in self.again.apart
        }
        try:
            return self._training(left, self.again.in_place)
        except NotMigrated as trouble:
            sharded = self.sharded
            try:
                found = self._training({**dict.fromkeys(sharded, trouble), **left}) if sharded else None
            except NotMigrated:
                found = None
            if found is None:
                raise
            return found if left else next(self._apart(sharded, trouble), found)

    def _apart(self, sharded: list[ast.stmt], trouble: NotMigrated) -> Iterator[Training]:
        """With as few of the evaluations apart as can be: their batches dealt out all the same, or else read whole."""
        for in_place in (True, False):
            for loops in [[loop] for loop in sharded if len(sharded) > 1] + [sharded]:
                try:
                    yield self._training(dict.fromkeys(loops, trouble), in_place)
                except NotMigrated:
                    continue

    def _training(self, whole: dict[ast.stmt, NotMigrated], in_place: bool = False) -> Training:
        """What is saved where a function that prepares has come back does not stand in the way either."""
        self.followed = False
        try:
            return self._attempt(whole, in_place, following=True)
        except NotMigrated:
            if not self.followed:
                raise
            return self._attempt(whole, in_place, following=False)

    def _attempt(self, whole: dict[ast.stmt, NotMigrated], in_place: bool, following: bool) -> Training:
        self.graph = self.seen
        participants, setup = self._set_up(whole, in_place)
        prepared = frozenset(built.variable for built in setup.prepared)
        participants = only_prepared(self.graph, participants, prepared, self.for_accelerate)
        found = self._findings(participants, setup, following)
        self._check_evaluated_later(participants, found.timing)
        # Other scripts that call the same helpers make an Accelerator of their own, or none: see `agreed`.
        self.graph = self.graph.within(loaded_with(self.roles.project, setup.place.module))
        creation, reach, needs = self._reach(participants, setup, found)
        modules = self._all_touched((*found.modules, *[module for module, _ in found.storage.left]), reach)
        self._check_names(modules)
        passed = passed_instead(reach, self.graph)
        device = found.device
        moved = frozenset(move.call for move in (*found.dropped, *found.kept))
        for bound in (False, True):
            start, precision, carrier, given = self._start(
                participants, setup, found, creation, reach, modules, needs, bound
            )
            gone = replace(found, precision=precision).gone(reach) | passed
            if device is not None and not start.stays:
                gone |= frozenset(device.module.walk(device.statement))
            tied = Tied(self.roles, self.graph, device, given, reach, found.distribution, self._idle(setup.place))
            if start.cpu or start.device or not tied.stays_on_cuda(modules, gone | moved, found.storage.held):
                break
        self._check_evaluated_by_trainer(participants, setup.home, start)
        if not self.keep_device:
            tied.check(modules, gone, found.dropped)
        named = [move.device for move in (*found.dropped, *found.renamed) if move.device is not None]
        lost = passed | {part for node in named for part in walk(node)}
        distribution, rebound = tidied(found.distribution, gone, device, lost, start.statement, given)
        self._check_told(distribution, rebound, creation)
        own_names = tuple(agreed_names(self.graph, start))
        prints = self._printed_once(found, printing(self.graph, reach, start, modules, list(setup.uses)), modules)
        return Training(
            index=self.index,
            home=setup.home,
            place=setup.place,
            prepared=setup.prepared,
            aliases=found.storage.held,
            backwards=tuple(self.group.backwards),
            loops=participants.loops,
            evaluations=participants.evaluations,
            dropped=tuple(found.dropped),
            kept=tuple(found.kept),
            spared=found.spared,
            staying=self.again.staying,
            unplaced=found.unplaced,
            fetched=found.fetched,
            device=device,
            creation=creation,
            reach=reach,
            modules=modules,
            start=start,
            prints=tuple(prints),
            needs_device=device is not None and device_is_needed(device, gone, reach, self.graph),
            device_texts=texts_of(self.graph, device, modules, gone) if device is not None else (),
            given=given,
            wraps_models=self.for_accelerate,
            model_attributes=found.attributes,
            forward_methods=self._forward_methods(participants, setup),
            loss_parts=frozenset(m.call for m in participants.methods if not m.is_known),
            timing=found.timing,
            local=found.local,
            decisions=found.decisions,
            storage=found.storage,
            bare=tuple((m, node) for m, node in found.bare if node not in gone or node in distribution.unwrapped),
            flow=self.flow,
            precision=precision,
            distribution=distribution,
            settings=carried_settings(found.distribution, carrier, self.for_accelerate),
            waiting=carried_timeout(found.distribution, carrier),
            rebound=rebound
            + (given.rebound() if given is not None else ())
            + broadcast(tuple(own for own in own_names if own.below is None and self.again.agrees)),
            own_names=own_names,
            agrees=self.again.agrees,
            gone=gone,
            observed=tuple(o for o in self.roles.taken if o.variable.scope.module in modules),
        )

    def _check_evaluated_later(self, participants: Participants, timing: Timing) -> None:
        """An evaluation of what `prepare` gives must not run before it."""
        for each in participants.evaluations:
            loop = each.loop
            if each.prepares and timing.may_be_skipped(self.graph, loop.module, loop.statement):
                raise NotMigrated(
                    f"{getattr(loop.function, 'name', 'it')}() may run before its loader is prepared",
                    (loop.module, loop.statement),
                )

    def _check_evaluated_by_trainer(self, participants: Participants, home: Scope, start: Start) -> None:
        """An evaluation that asks the Accelerator of its object must run on the one that has made it."""
        for each in participants.evaluations:
            if isinstance(each, Summed) and not each.prepares and self._may_be_of_another(home, start, each.loop):
                raise NotMigrated(
                    f"{getattr(each.loop.function, 'name', 'it')}() may run on an object that has no Accelerator yet",
                    (each.loop.module, each.loop.statement),
                )

    def _set_up(self, whole: dict[ast.stmt, NotMigrated], in_place: bool) -> tuple[Participants, Setup]:
        participants = self._participants(whole, in_place)
        try:
            return participants, SetupFinder(self.graph, self.group).setup(participants)
        except NotMigrated:
            read_whole = [e.loop.module.variable(e.loop.loader) for e in participants.evaluations if not e.prepares]
            self.handed = prepared_in_functions(self.graph, participants.chains, read_whole)
            if not self.handed or not self.in_functions:
                raise
        self.graph = self.graph.ending_at(built.variable for built, _ in self.handed)
        participants = self._participants(whole, in_place)
        return participants, SetupFinder(self.graph, self.group, self.handed).setup(participants)

    def _participants(self, whole: dict[ast.stmt, NotMigrated], in_place: bool) -> Participants:
        found = ParticipantFinder(
            self.roles, self.graph, self.flow, self.group, self.loops, self.for_accelerate, whole, in_place
        ).participants()
        self.sharded = [e.loop.statement for e in found.evaluations if e.prepares]
        return found

    def _prints_once(self, modules: Iterable[Module]) -> bool:
        """Whether the script itself is to print once: by request, or because it silenced its other processes."""
        return self.prints_once or any(True for module in modules for _ in silenced_prints(module, ""))

    def _printed_once(
        self, found: _Findings, prints: Iterable[tuple[Module, ast.Call]], modules: tuple[Module, ...]
    ) -> Iterator[tuple[Module, ast.Call]]:
        """Those that one process did, under a guard that is gone; with `_prints_once` those that all do, as well."""
        once = self._prints_once(modules)
        for module, call in prints:
            if found.storage.runs_everywhere(module, call) or (once and not self.flow.only_some(module, call)):
                yield module, call

    def _findings(self, participants: Participants, setup: Setup, following: bool) -> _Findings:
        home, place = setup.home, setup.place
        precision = find_precision(self.graph, self.group.backwards, list(participants.loops))
        used_in = [
            place.module,
            *[b.module for b in self.group.backwards],
            *[loop.module for loop in participants.loops],
            *([owner.module for owner in self.roles.project.family(home)] if home.is_class else []),
        ]
        modules = tuple(dict.fromkeys([*used_in, *precision.modules(), *participants.distribution.modules()]))
        timing = find_timing(self.graph, home, place)
        modules = (*modules, *self._moving(modules, participants, place, timing))
        held = handed_on(self.graph, timing, participants.aliases)
        unheld = handed_on(self.graph, timing, participants.distribution.wrapped - held) - held
        everywhere = dict.fromkeys([*modules, *[variable.scope.module for variable in held | unheld]])
        distribution = with_unwrapping(
            participants.distribution, everywhere, home, place, held, unheld, self.for_accelerate
        )
        if home.is_class:
            distribution = through_trainer(self.roles, distribution, home)
        unplaced, dropped, kept, fetched = sort_moves(self.graph, modules, participants, place, timing)
        spared = (
            dropped
            if self.keep_device or self.again.staying
            else [m for m in dropped if self.keeps(m.module, m.call.lineno)]
        )
        dropped, kept = [move for move in dropped if move not in spared], [*kept, *spared]
        self.followed = follows_prepare(timing, self.roles.project.modules)
        storage = find_storage(self.graph, self.flow, timing, held, self.for_accelerate, following)
        check_other_wrappers(self.graph, distribution, storage)
        shares = [
            loop
            for loop in participants.loops
            if is_share(participants, loop) and not is_chosen(self.roles, loop)
            if not is_another(self.graph, timing, loop.module, loop.loader)
        ]
        evaluating = [call for e in participants.evaluations if isinstance(e, Whole) for call in e.calls]
        local = Locality(self.graph, shares, self.group.backwards, evaluating)
        by_number.check(self.graph, local, shares, self.group.backwards)
        drawn = in_own_order(self.graph, self.flow, timing, participants.evaluations, not self.for_accelerate)
        deciding = local
        if drawn:
            deciding = Locality(self.graph, [*shares, *drawn], self.group.backwards, evaluating)
        lifted = {one.guard for one in storage.lifted}
        return _Findings(
            modules,
            precision,
            distribution,
            timing,
            local,
            tuple(DecisionFinder(self.roles, deciding, [*shares, *drawn], timing, self.flow).find(modules)),
            storage,
            tuple(bare_uses(self.roles, self.flow, timing, storage.held, lifted, distribution.unwrapped)),
            tuple(own_attributes(self.graph, modules, participants.aliases, timing, participants.methods)),
            dropped,
            kept,
            tuple(spared),
            unplaced,
            tuple(fetched),
            find_device(self.graph, home, place, self._made(setup, kept + dropped), distribution),
        )

    def _made(self, setup: Setup, moves: list[Move]) -> list[Move]:
        """The moves that a run of this training may make: not those of functions that nothing runs."""
        idle = self._idle(setup.place) if moves else frozenset()
        return [move for move in moves if unit_of(move.call, move.module.ancestors(move.call)) not in idle]

    @once
    def _idle(self, place: Place) -> frozenset[Unit]:
        running = [(b.module, b.call) for b in self.group.backwards]
        return idle_in(self.roles.project, place.module, [(place.module, place.after), *running])

    def _moving(
        self, modules: tuple[Module, ...], participants: Participants, place: Place, timing: Timing
    ) -> list[Module]:
        """Other files on the way of the objects with moves that go: what a script moves a trainer's class prepares."""
        files = dict.fromkeys(link.scope.module for links in participants.chains for link in links)
        others = tuple(module for module in files if module not in modules and moves_in(self.roles, module))
        found = sort_moves(self.graph, others, participants, place, timing).dropped if others else []
        return list(dict.fromkeys(move.module for move in found))

    def _reach(
        self, participants: Participants, setup: Setup, found: _Findings
    ) -> tuple[Scope, Reach, list[tuple[Module, ast.AST]]]:
        """Where the Accelerator is made, and how it gets to all that need it."""
        home, place, distribution = setup.home, setup.place, found.distribution
        needs: list[tuple[Module, ast.AST]] = [(b.module, b.call) for b in self.group.backwards]
        needs += [(place.module, statement) for statement in (place.after, *[after for after, _ in place.again()])]
        needs += [(built.variable.scope.module, statement) for built, statement in place.handed]
        needs += [(e.loop.module, e.after) for e in participants.evaluations if isinstance(e, Gather)]
        needs += [(e.loop.module, e.loop.statement) for e in participants.evaluations if isinstance(e, Summed)]
        needs += [(m.module, m.call) for m in found.renamed if not is_idle(self.graph, m.module, m.call)]
        needs += [
            (replacement.module, replacement.node)
            for replacement in distribution.replacements
            if replacement.needs_accelerator
        ]
        needs += [(decision.module, decision.place) for decision in found.decisions if decision.is_number]
        needs += found.storage.needs
        needs += found.bare if self.for_accelerate else ()
        needs += [(region.module, region.call) for region in found.precision.regions]
        needs += found.precision.scaling.unscaled
        creation = self._creation(setup, found, needs)
        replaced = rank_parameters(distribution, found.dropped, found.kept, self.graph)
        finder = ReachFinder(
            self.roles,
            self.graph,
            self.seen,
            self.keep_device,
            {**move_parameters(found.dropped, self.graph), **replaced, **found.precision.scaling.parameters},
            found.taken,
        )
        guarded = self._under_main_guard(creation, place if found.device is None else None, found.device)
        asked = [(one.module, one.node) for one in found.attributes] if self.for_accelerate else []
        wishes = [*self._wishes(participants, found), *asked]
        reach = finder.reach(creation, home if creation.is_class else None, guarded, needs, wishes)
        return creation, reach, needs

    def _check_told(self, distribution: Distribution, rebound: tuple[str, ...], creation: Scope) -> None:
        """What a spawned function was told it must be able to ask of the Accelerator."""
        spawned = distribution.spawned
        if spawned is not None and rebound and creation.node is not spawned.function:
            names = " and ".join(f"`{text.partition(' =')[0]}`" for text in rebound)
            raise NotMigrated(
                f"{spawned.function.name}() is spawned and reads {names}, and the Accelerator is made further in",
                (spawned.module, spawned.function),
            )

    def _creation(self, setup: Setup, found: _Findings, needs: list[tuple[Module, ast.AST]]) -> Scope:
        """The scope that makes the Accelerator: the trainer's class, where its device is chosen, or around all uses."""
        home, device = setup.home, found.device
        if home.is_class and not (device is not None and self._is_read_beside(device, setup.place, found)):
            return home
        around = creation_scope(self.graph, home, needs) if not home.is_class else home
        made = device.scope if device is not None and not self._is_left_behind(device, home, found) else around
        return self._above_all(made, found.distribution)

    def _is_left_behind(self, device: DeviceDefinition, home: Scope, found: _Findings) -> bool:
        """Whether nothing needs a global device any more, in a file that workers or others import: main() has it all."""
        if device.scope.parent is not None or not home.is_function or not is_imported(self.roles, device.module):
            return False
        plain = choice_of(self.roles, device, found.distribution.ranks) == Choice()
        return plain and not any(True for _ in self._reads_of(device, found))

    def _is_read_beside(self, device: DeviceDefinition, place: Place, found: _Findings) -> bool:
        """Whether a global device is still read by functions of its file other than the one that prepares."""
        module, variable = device.module, device.variable
        if variable.scope.parent is not None or module is not place.module:
            return False
        prepares = module.scope(place.after).function
        return any(module.scope(node).function is not prepares for node in self._reads_of(device, found))

    def _reads_of(self, device: DeviceDefinition, found: _Findings) -> Iterator[ast.Name]:
        """Where its file still reads a device once the needless moves are gone."""
        module = device.module
        inside = {*module.walk(device.statement), *[n for s in device.later for n in module.walk(s)]}
        for move in found.dropped:
            inside.update(part for argument in move.call.args for part in walk(argument))
        for node in module.reads(device.variable):
            if isinstance(node, ast.Name) and node not in inside:
                yield node

    def _start(
        self,
        participants: Participants,
        setup: Setup,
        found: _Findings,
        creation: Scope,
        reach: Reach,
        modules: tuple[Module, ...],
        needs: list[tuple[Module, ast.AST]],
        bound: bool,
    ) -> tuple[Start, Precision, Respelling, OutsideDevice | None]:
        """Where the Accelerator is made, with what it is told there."""
        device = found.device
        dropped, kept = self._made(setup, found.dropped), self._made(setup, found.kept)
        setting_up = setup.place.module.scope(setup.place.after) if creation.is_class else creation
        own = device if device is not None and device.scope in (creation, setting_up) else None
        moves = [] if device is not None or self.keep_device else dropped + kept
        given = find_outside_device(self.graph, creation, moves, modules, found.gone(reach), reach, found.distribution)
        start = StartFinder(
            self.roles,
            self.graph,
            creation,
            setup.place,
            own,
            given,
            dropped,
            kept,
            reach,
            found.distribution,
            needs,
            found.gone(reach),
            modules,
            participants.aliases,
            self._prints_once(modules),
            bound,
        ).start()
        replacements = {replacement.statement for replacement in found.distribution.replacements}
        carrier = Respelling(self.graph, start.module, start.statement, replacements)
        precision = with_argument(found.precision, carrier, own, start.cpu)
        for later in put_off(start, own) if carrier.inlined else ():
            start = later
            carrier = Respelling(
                self.graph, start.module, start.statement, replacements, own.statement if own else None
            )
            precision = with_argument(found.precision, carrier, own, start.cpu)
            if not carrier.inlined:
                break
        if carrier.switch is not None:
            raise NotMigrated(
                f"`{unparse(carrier.switch)}`, which decides about mixed precision, is set only after the Accelerator is needed",
                (start.module, start.statement),
            )
        if device is None and given is None and not (dropped or kept or precision.regions or start.cpu or start.device):
            beside = [(e.loop.module, e.loop.statement) for e in participants.evaluations if not e.prepares]
            group, near = self.group.backwards, start.module
            tied = cpu_only(self.graph, group, modules, found.timing, setup.prepared, beside, near)
            if tied:
                check_built_here(self.graph, setup.prepared)
            files = loaded_with(self.roles.project, setup.place.module, setup.place.after)
            unnamed = tied is None and not names_gpu(self.roles, files, self._idle(setup.place))
            start = replace(start, cpu="True" if tied else None, tied=tied, moves=unnamed)
        return after_names(start, precision.argument), precision, carrier, given

    def _forward_methods(self, participants: Participants, setup: Setup) -> tuple[tuple[Built, str], ...]:
        """Each model as its home names it, with the method that makes its loss."""
        found = {
            (built, method.name): None
            for method in participants.methods
            for built in setup.prepared
            if method.is_known and built.variable in chain(self.graph, method.model)
        }
        return tuple(found)

    def _all_touched(self, modules: tuple[Module, ...], reach: Reach) -> tuple[Module, ...]:
        """Some files, with those that define or call a function which is handed the Accelerator."""
        found = [*modules]
        for function, parameter in reach.parameters.items():
            found += [parameter.module, *[caller for caller, _ in self.graph.sites.get(function, ())]]
        return tuple(dict.fromkeys(found))

    def _above_all(self, creation: Scope, distribution: Distribution) -> Scope:
        """The scope from which every place that asks for the Accelerator can be reached."""
        for replacement in distribution.replacements:
            if not replacement.needs_accelerator:
                continue
            function = replacement.module.scope(replacement.node).function
            if function is None:
                return replacement.module.root
            reached = self.graph.reached_from(function, replacement.module)
            if function is not creation.node and creation.node in reached:
                creation = replacement.module.functions[function]
        return creation

    def _may_be_of_another(self, home: Scope, start: Start, loop: LoaderLoop) -> bool:
        """Whether a method that evaluates is called from outside of its class, which makes its Accelerator where it trains."""
        late = home.is_class and start.module.scope(start.statement).function is not home.constructor
        sites = self.graph.sites.get(loop.function, ()) if late and loop.function is not None else ()
        return any(owner.scope(call).owner_class is not home for owner, call in sites)

    def _under_main_guard(self, creation: Scope, place: Place | None, device: DeviceDefinition | None) -> bool:
        statement = device.statement if device is not None else (place.after if place is not None else None)
        if creation.parent is not None or statement is None:
            return False
        from_where = self._run_from(place) if device is None and place is not None else statement
        return under_main(creation.module, from_where)

    def _run_from(self, place: Place) -> ast.AST:
        """What stands outside of all functions, and leads to the place of prepare."""
        module: Module = place.module
        node: ast.AST = place.after
        while (function := module.scope(node).function) is not None and self.graph.sites.get(function):
            module, node = self.graph.sites[function][0]
        return node

    def _wishes(self, participants: Participants, found: _Findings) -> list[tuple[Module, ast.AST]]:
        """Evaluation functions that print what is to be written once, and functions that write files beside other work."""
        once = self._prints_once(found.modules)
        printing = [
            (loop.module, loop.statement)
            for loop in (evaluation.loop for evaluation in participants.evaluations)
            if loop.function is not None
            and (once or found.storage.runs_everywhere(loop.module, loop.statement))
            and any(getattr(name, "id", "") == "print" for name in loop.module.walk(loop.function, ast.Name))
        ]
        writing = [(one.module, one.statement) for one in found.storage.written if one.module in found.modules]
        within = [(each, each[0].scope(each[1]).function) for each in writing]
        return [
            *printing,
            *(each for each, function in within if function is not None and not only_writes(each[0], function)),
        ]

    def _check_names(self, modules: tuple[Module, ...]) -> None:
        for module in modules:
            for name, origin, line in unknown_names(module, self.roles.project.imported_module):
                raise NotMigrated(
                    f"`{name}` comes from `from {origin} import *`, which is not looked into; import it by its name",
                    (module, line),
                )
            if NAME in module.root.bindings or any(NAME in scope.bindings for scope in module.functions.values()):
                raise NotMigrated("the name `accelerator` is taken in this file", 1)
