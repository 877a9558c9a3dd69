"""Who takes part in a training: models, optimizers, schedulers stepped per batch, loaders, and the loops over them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from accel_migrate.analysis.distribution.distribution import find_distribution
from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.evaluation.evaluation import Evaluation, Gather, Whole, judge, judge_by_batch
from accel_migrate.analysis.evaluation.results import divided_by_length, is_length
from accel_migrate.analysis.moves.batches import Batches
from accel_migrate.analysis.moves.devices import Move, moves_in
from accel_migrate.analysis.trainings.by_hand import with_shared_by_hand
from accel_migrate.analysis.trainings.fed import feeds_training
from accel_migrate.analysis.trainings.groups import Group
from accel_migrate.analysis.trainings.obstacles import HANDED_A_GRADIENT, is_handed_a_gradient
from accel_migrate.analysis.trainings.obstacles import check as check_obstacles
from accel_migrate.analysis.trainings.one_process import check_backwards, judged_by_rank
from accel_migrate.analysis.trainings.optimizers import check_optimizers, steps_own_tensors
from accel_migrate.analysis.trainings.phases import (
    Entry,
    evaluating_calls,
    is_chosen,
    is_entry,
    kept_whole,
    trained_entries,
    training_test,
)
from accel_migrate.analysis.trainings.shuffled import draws_data
from accel_migrate.analysis.trainings.step_counts import Ended, ended_by
from accel_migrate.analysis.trainings.updates import caller_not_given, is_stepped, updated_by_hand, why_no_update
from accel_migrate.analysis.values.constructions import (
    built_calls,
    collates_graphs,
    is_foreign_loader,
    may_drop_last,
    pads_batches,
)
from accel_migrate.analysis.values.imported import runs_at, runs_in, scripts_that_run
from accel_migrate.analysis.values.loops import (
    CallGraph,
    LoaderLoop,
    collected_loaders,
    makes_loss,
    training_loops,
    variables_in,
)
from accel_migrate.analysis.values.loss_path import LossPath, same_models
from accel_migrate.analysis.values.methods import ForwardMethod, find_forward_methods
from accel_migrate.analysis.values.provenance import NotMigrated, Scattered, chain, is_passed_on, is_root, whole_model
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import behind
from accel_migrate.flow.nodes import all_arguments, is_call_of, unparse
from accel_migrate.flow.scopes import Module, Variable

_NOT_BUILT_HERE = "its loader is not built where the others are prepared"
_KEPT_WHOLE = "its loader also goes to a loop that trains and evaluates"


_EPOCHS_OF_LENGTH = (
    "`{}` moves on in each batch, and how many epochs there are is worked out of the length of the loader, of which each process "
    "has a part; take the number of epochs from an option"
)


@dataclass(frozen=True, eq=False)
class Participants:
    """`chains` leads from each object to where it was built; loaders that stay whole are left out of them."""

    loops: tuple[LoaderLoop, ...]
    evaluations: tuple[Evaluation, ...]
    loaders: tuple[Variable, ...]  # those to shard
    shared: frozenset[Variable]  # the same, with all that hands them on
    chains: tuple[list[Variable], ...]
    distribution: Distribution
    methods: tuple[ForwardMethod, ...]
    entries: tuple[Entry, ...]  # loaders to shard that are kept in dictionaries

    @property
    def aliases(self) -> frozenset[Variable]:
        """Every variable, in any scope, that holds an object to prepare."""
        return frozenset(link for links in self.chains for link in links)


def only_prepared(
    graph: CallGraph, participants: Participants, prepared: frozenset[Variable], for_accelerate: bool
) -> Participants:
    """The same, without the loaders of evaluations that `prepare` does not get; NotMigrated if it gets one of several."""
    evaluations: list[Evaluation] = []
    shared = set(participants.shared)
    for evaluation in participants.evaluations:
        links = chain(graph, evaluation.loop.module.variable(evaluation.loop.loader))
        if evaluation.prepares and not prepared.intersection(links):
            shared -= set(links)
            whole = Whole(evaluation.loop, _NOT_BUILT_HERE, evaluation.loop.statement.lineno)
            evaluation = whole if for_accelerate else _in_place(graph, participants.loops, whole)
        if evaluation.prepares:
            _check_other_loaders(graph, evaluation.loop, links, prepared)
        evaluations.append(evaluation)
    return replace(participants, evaluations=tuple(evaluations), shared=frozenset(shared))


def _in_place(graph: CallGraph, loops: Iterable[LoaderLoop], whole: Whole) -> Evaluation:
    """What is read whole because its loader is not prepared may be dealt out all the same, as it is."""
    loop = whole.loop
    sources = {*chain(graph, loop.module.variable(loop.loader))}
    trained = (link for each in loops if each.trains for link in chain(graph, each.module.variable(each.loader)))
    if not sources or not sources.isdisjoint(trained) or draws_data(graph, loop.module, loop.loader):
        return whole
    return judge_by_batch(graph.roles, graph, whole, prepares=False)


def _check_other_loaders(
    graph: CallGraph, loop: LoaderLoop, links: list[Variable], prepared: frozenset[Variable]
) -> None:
    """A function that is handed loaders of several places counts right for all of them or for none."""
    covered = {source for link in prepared.intersection(links) for source in chain(graph, link)}
    for link in links:
        if link not in covered and is_root(graph.roles, link) and not is_passed_on(graph, link):
            (binding, *_) = link.scope.module.bindings(link)
            goes = f"{loop.function.name}()" if loop.function is not None else "the evaluation"
            message = (
                f"`{link.name}`, which {goes} goes through as well, is built apart from what is prepared; build it with the "
                "others, or evaluate it by a function of its own"
            )
            raise NotMigrated(message, (link.scope.module, binding.statement))


def is_share(participants: Participants, loop: LoaderLoop) -> bool:
    """Whether a loop goes through this process's part of its data, and gathers nothing of it."""
    if any(not isinstance(evaluation, Whole) and evaluation.loop is loop for evaluation in participants.evaluations):
        return False
    if isinstance(loop.loader, ast.Subscript):
        key = loop.module.source.code(loop.loader.slice)
        return any(entry.key == key for entry in participants.entries)
    variable = loop.module.variable(loop.loader)
    return variable is not None and variable in participants.aliases


@dataclass(eq=False)
class ParticipantFinder:
    """The evaluations in `whole` read a loader that is not prepared, each for its reason; `in_place` deals its batches out."""

    roles: Roles
    graph: CallGraph
    flow: RankFlow
    group: Group
    all_loops: list[LoaderLoop]
    for_accelerate: bool  # then no evaluation goes through whole batches
    whole: dict[ast.stmt, NotMigrated]
    in_place: bool

    def __post_init__(self) -> None:
        read = collected_loaders(self.roles)
        self.collected = [(m, node, v) for m, node, loader in read if (v := m.variable(loader)) is not None]
        # A function may be handed the objects of another script too, of which no run trains.
        backwards = self.group.backwards
        self.scripts = {s for b in backwards for s in scripts_that_run(self.roles.project, b.module, b.call)}

    def participants(self) -> Participants:
        """NotMigrated where nothing known is trained, or something stands in the way."""
        self._check_gradients()
        models, optimizers = self._trained()
        check_backwards(self.flow, self.group.backwards)
        methods = tuple(find_forward_methods(self.graph, self.group.backwards, models, self.for_accelerate))
        loops = self._own_loops(models)
        evaluations = with_shared_by_hand(self.graph, self.group.backwards, self._evaluations(loops))
        near = self._files(models + optimizers, loops)
        check_obstacles(self.roles, near)
        distribution = find_distribution(self.graph, near, evaluations, self.for_accelerate)
        evaluating = evaluating_calls(self.graph, self.group.backwards, loops)
        whole = kept_whole(self.graph, evaluating)
        evaluations = [
            self._in_place(loops, Whole(e.loop, _KEPT_WHOLE, e.loop.statement.lineno))
            if e.prepares and whole.issuperset(self._sources(e.loop))
            else e
            for e in evaluations
        ]
        loaders = self._loaders(loops, evaluations)
        both = "one loop trains and evaluates"
        evaluations += [Whole(e.loop, both, e.call.lineno, e.module, (e.call,)) for e in evaluating]
        evaluations += [self._by_phase(loop, both) for loop in loops if is_chosen(self.roles, loop)]
        entries = tuple(dict.fromkeys(trained_entries(self.roles, self.group.backwards, loops)))
        kept_together = [entry.variable for entry in entries]
        schedulers = [
            scheduler
            for scheduler in self._per_batch_schedulers(loops, distribution)
            if not self._is_made_per_round(scheduler, optimizers)
        ]
        used = [*models, *optimizers, *schedulers, *loaders, *kept_together]
        chains = [
            [
                link
                for link in chain(self.graph, variable)
                if link not in whole and runs_in(self.roles.project, link, self.scripts)
            ]
            for variable in dict.fromkeys(used)
        ]
        shared = frozenset(link for loader in loaders for link in chain(self.graph, loader)) - whole
        return Participants(
            tuple(loops), tuple(evaluations), tuple(loaders), shared, tuple(chains), distribution, methods, entries
        )

    def _check_gradients(self) -> None:
        """A backward pass that is handed a gradient, beside others, would be the only one that is not the Accelerator's."""
        for module, around in dict.fromkeys((b.module, b.function or b.module.tree) for b in self.group.backwards):
            for call in module.walk(around, ast.Call):
                if is_handed_a_gradient(self.roles, module, call):
                    raise NotMigrated(HANDED_A_GRADIENT, (module, call))

    def _trained(self) -> tuple[list[Variable], list[Variable]]:
        """The models, and the optimizers over them; weights may be updated by hand instead."""
        backwards = self.group.backwards
        optimizers = [v for v, role in self.group.variables.items() if role & Role.OPTIMIZER]
        check_optimizers(self.graph, optimizers, self.for_accelerate, self._averages_tensors(optimizers))
        optimized = self._optimized_models(optimizers)
        named = [v for v, role in self.group.variables.items() if role & Role.MODEL]
        if optimizers:
            path = LossPath(self.graph, backwards)
            wholes = {whole_model(self.roles, model) for model in named}
            others = [model for model in path.models if whole_model(self.roles, model) not in wholes]
            named += [model for model in others if not optimized.isdisjoint(chain(self.graph, model))]
            named = list(dict.fromkeys(self._as_run(path, model) for model in named))
            models = self._run_by(path, named, {self._as_run(path, model) for model in optimized})
        else:
            models = [variable for b in backwards for variable in updated_by_hand(self.roles, b)]
        if not models:
            stepped = next((each for each in backwards if is_stepped(each)), backwards[0])
            raise NotMigrated(why_no_update(self.graph, stepped), (stepped.module, stepped.call))
        self._check_each_optimizer(optimizers)
        return models, optimizers

    def _check_each_optimizer(self, optimizers: list[Variable]) -> None:
        """Of several optimizers each must be known to update models: what one alone knows is not averaged otherwise."""
        for optimizer in optimizers if len(optimizers) > 1 else ():
            built = built_calls(self.graph, optimizer, Role.OPTIMIZER)
            tensors = all(steps_own_tensors(*made) for made in built)
            averaged = tensors and self._averages_tensors(optimizers)
            if built and not averaged and not self._optimized_models([optimizer]):
                reason = (
                    f"`{optimizer.name}` steps tensors that belong to no model, whose gradients Accelerate does not average"
                    if tensors
                    else f"whose parameters `{optimizer.name}` updates is not visible to the analysis, so nobody may average "
                    "their gradients"
                )
                raise NotMigrated(reason, (self.group.backwards[0].module, self.group.backwards[0].call))

    def _averages_tensors(self, optimizers: list[Variable]) -> bool:
        """Whether what an optimizer steps beside those of models is averaged, as a temperature is: not by Accelerate."""
        return len(optimizers) > 1 and not self.for_accelerate

    def _as_run(self, path: LossPath, model: Variable) -> Variable:
        """`net` of `net.fc`, where the loss is computed through `net`: what steps a part trains the whole."""
        whole = whole_model(self.roles, model)
        return whole if path.goes_through(whole) and not path.goes_through(model) else model

    def _run_by(self, path: LossPath, named: list[Variable], optimized: set[Variable]) -> list[Variable]:
        """Of the models that are named those that the loss is computed through and the optimizers update."""
        run = [model for model in named if path.goes_through(model)]
        same = {model: same_models(self.graph, model) for model in named}
        models = [model for model in run if not optimized or not same[model].isdisjoint(optimized)]
        if not optimized and (path.unknown or len(models) > 1):
            self._check_known(path, models)
        covered = set().union(*(same[model] for model in models))
        for model in named:
            if model not in models and not (left := same[model] & optimized) <= covered:
                if not left <= covered.union(*map(self.roles.held_by, models)):
                    raise self._not_run(path, model)
        wholes = {model: whole_model(self.roles, model) for model in models}
        # A part beside its whole has its weights twice, which fsdp cannot shard.
        return [model for model, whole in wholes.items() if whole is model or whole not in wholes]

    def _check_known(self, path: LossPath, models: list[Variable]) -> None:
        """Without knowing whose parameters the optimizer updates, there may be only one that it can be."""
        first = self.group.backwards[0]
        for variable, expression in path.unknown.items():
            unset = variable.scope.is_class and not variable.scope.module.bindings(variable)
            if unset and self.roles.project.inherited(variable) is None:
                owner = variable.scope.node.name  # type: ignore[attr-defined]
                reason = f"`{variable.name}`, which the loss is computed through, is not set by {owner} itself"
                raise NotMigrated(f"{reason}, so it is built apart from its optimizer", (first.module, expression))
            function = first.function
            if (
                function is not None
                and not self.graph.sites.get(function)
                and first.module.scope(function).parent is None
            ):
                raise NotMigrated(caller_not_given(function), (first.module, function))
            text = unparse(expression)
            raise NotMigrated(
                f"what `{text}` is, which the loss is computed through, is not visible to the analysis",
                (next(module for module in self.roles.project.modules if expression in module.parents), expression),
            )
        texts = ", ".join(dict.fromkeys(f"`{model.name}`" for model in models))
        told = f"whose parameters the optimizer updates is not visible to the analysis: {texts}"
        raise NotMigrated(told, first.call.lineno)

    def _not_run(self, path: LossPath, model: Variable) -> NotMigrated:
        first = self.group.backwards[0]
        run = [unparse(expression) for expression in (*path.models.values(), *path.unknown.values())]
        through = ", ".join(f"`{text}`" for text in dict.fromkeys(run))
        found = (
            f"the loss is computed through {through}"
            if run
            else "what the loss is computed through is not visible to the analysis"
        )
        return NotMigrated(f"the optimizer updates `{model.name}`, and {found}", (first.module, first.call))

    def _optimized_models(self, optimizers: list[Variable]) -> set[Variable]:
        """Models whose parameters these optimizers were built over."""
        found: set[Variable] = set()
        for optimizer in optimizers:
            for link in chain(self.graph, optimizer):
                found |= self.roles.observed[link].over if link in self.roles.observed else set()
                module = link.scope.module
                for binding in module.bindings(link):
                    if binding.value is not None and not self._is_handed(module, binding.value, link):
                        found |= self._models_in(module, binding.value)
        return found

    def _is_handed(self, module: Module, value: ast.expr, optimizer: Variable) -> bool:
        """Whether a call is given the optimizer and gives it back: it was built before, over what is told there."""
        return isinstance(value, ast.Call) and any(module.variable(part) == optimizer for part in all_arguments(value))

    def _models_in(self, module: Module, value: ast.expr, depth: int = 0) -> set[Variable]:
        """Models that an expression names, also through `params = [p for p in model.parameters() ...]`."""
        found: set[Variable] = set()
        for variable, _ in variables_in(module, value):
            if self.roles.of(variable) & Role.MODEL:
                found.update(chain(self.graph, variable))
            elif depth < 2 and not self.roles.of(variable):
                for binding in module.bindings(variable):
                    if binding.value is not None and binding.kind == "assign":
                        found |= self._models_in(module, binding.value, depth + 1)
        return found

    def _own_loops(self, models: list[Variable]) -> list[LoaderLoop]:
        """The loader loops in which these models run, here or in what the loop calls."""
        own = {link for model in models for link in chain(self.graph, model)}

        def runs(module: Module, node: ast.AST) -> bool:
            return any(
                self.roles.of(variable) & Role.MODEL and any(link in own for link in chain(self.graph, variable))
                for variable, _ in variables_in(module, node)
            )

        mine = {backward.call for backward in self.group.backwards}
        found = []
        for loop in self.all_loops:
            if not runs_at(self.roles.project, loop.module, loop.statement, self.scripts):
                continue
            mentions = runs(loop.module, loop.statement) or any(
                runs(self.roles.project.module_of(function), function)
                for function in self.graph.reached_from(loop.statement, loop.module)
            )
            if mentions or any(child in mine for child in loop.module.walk(loop.statement)):
                found.append(loop)
        # An epoch loop written over one loader may hold the loop over another: the inner ones decide.
        return found

    def _files(self, variables: list[Variable], loops: list[LoaderLoop]) -> list[Module]:
        """The files in which these objects are built, handed on and used."""
        links = [link for variable in variables for link in chain(self.graph, variable)]
        found = [b.module for b in self.group.backwards] + [loop.module for loop in loops]
        found += [link.scope.module for link in links if runs_in(self.roles.project, link, self.scripts)]
        return list(dict.fromkeys(found))

    def _evaluations(self, loops: list[LoaderLoop]) -> list[Evaluation]:
        """How each evaluation is made right. A loader that one loop must read whole is read whole by all."""
        self._check_loaders([loop for loop in loops if loop.trains])
        for loop in loops:
            if not loop.trains and any(makes_loss(loop, backward) for backward in self.group.backwards):
                raise NotMigrated(
                    "the losses of all batches are added up for one backward pass, and each process would add up its own, for "
                    "a mean over the processes; run backward() on the loss of each batch, which adds up the gradients",
                    (loop.module, loop.statement),
                )
        moves = {module: moves_in(self.roles, module) for module in {loop.module for loop in loops}}
        judged = [self._judged(loop, loops, moves[loop.module]) for loop in loops if not loop.trains]
        judged = [judged_by_rank(self.flow, evaluation) for evaluation in judged]
        whole = {link for e in judged if not e.prepares for link in self._sources(e.loop)}
        trained = {link for loop in loops if loop.trains for link in self._sources(loop)}
        self._check_shared(judged, trained)
        kept: list[Evaluation] = []
        for evaluation in judged:
            shared = [link for link in self._sources(evaluation.loop) if is_root(self.roles, link)]
            if evaluation.prepares and any(link in whole - trained for link in shared):
                other = next(
                    e.loop for e in judged if not e.prepares and not set(shared).isdisjoint(self._sources(e.loop))
                )
                reason = "another loop reads the same loader whole"
                left = Whole(evaluation.loop, reason, other.statement.lineno, other.module)
                evaluation = self._in_place(loops, left)
            kept.append(evaluation)
        return kept

    def _check_loaders(self, loops: list[LoaderLoop]) -> None:
        """What may be no DataLoader, by what an option of the script chooses, is not sharded on every run."""
        for loop in loops:
            if any(self.roles.may_be_of_batches(link.scope.module, link) for link in self._sources(loop)):
                raise NotMigrated(
                    f"`{unparse(loop.loader)}` may be an iterator of torchtext, which is not sharded over processes as a "
                    "DataLoader is; keep to one of them",
                    (loop.module, loop.statement),
                )

    def _check_shared(self, judged: list[Evaluation], trained: set[Variable]) -> None:
        """A loader that is sharded is read by all processes together."""
        for evaluation in judged:
            if isinstance(evaluation, Whole) and evaluation.on_main:
                loop = evaluation.loop
                if any(link in trained and is_root(self.roles, link) for link in self._sources(loop)):
                    raise NotMigrated(
                        f"a condition on the rank decides who goes through `{unparse(loop.loader)}` here, and it is "
                        "trained on: sharded over all processes, it must be read by all",
                        (loop.module, loop.statement),
                    )

    def _judged(self, loop: LoaderLoop, loops: list[LoaderLoop], moves: list[Move]) -> Evaluation:
        if sum(other.statement is loop.statement for other in loops) > 1:
            return Whole(loop, "several loaders are read side by side", loop.statement.lineno)
        if (trouble := self.whole.get(loop.statement)) is not None:
            own = trouble.module in (None, loop.module) and not isinstance(trouble, Scattered)
            reason = _NOT_BUILT_HERE if isinstance(trouble, Scattered) else str(trouble)
            whole = Whole(loop, reason, trouble.line if own else loop.statement.lineno)
            return self._in_place(loops, whole) if self.in_place else whole
        if is_entry(self.roles, loop.module, loop.loader):
            return Whole(loop, "its loader is kept in a dictionary", loop.statement.lineno)
        variable = loop.module.variable(loop.loader)
        if variable is None:
            return Whole(loop, "its loader has no name of its own", loop.statement.lineno)
        if is_foreign_loader(self.graph, variable):
            return Whole(loop, "its loader is of a library that samples by itself", loop.statement.lineno)
        sources = set(self._sources(loop))
        for module, node, collected in self.collected:
            if not sources.isdisjoint(chain(self.graph, collected)):
                reason = f"`{unparse(node)[:50]}` reads all batches of its loader"
                return self._in_place(loops, Whole(loop, reason, node.lineno, module))
        by_rows = self._judged_by_rows(loop, variable, moves)
        training = [other for other in loops if other.trains and not sources.isdisjoint(self._sources(other))]
        trains = frozenset(other.function for other in training)
        if isinstance(by_rows, Gather) or self.for_accelerate:
            return by_rows
        by_batch = judge_by_batch(self.roles, self.graph, by_rows, trains)
        return self._in_place(loops, by_batch) if isinstance(by_batch, Whole) else by_batch

    def _by_phase(self, loop: LoaderLoop, reason: str) -> Evaluation:
        """What trains in one phase is dealt out in the others."""
        whole = Whole(loop, reason, loop.statement.lineno)
        trains = training_test(self.roles, loop, self.group.backwards)
        if trains is None or self.for_accelerate or loop.statement in self.whole:
            return whole
        if draws_data(self.graph, loop.module, loop.loader.value):  # type: ignore[attr-defined]
            return whole
        found = judge_by_batch(self.roles, self.graph, whole, prepares=False, trains_if=trains)
        return whole if isinstance(found, Whole) else found

    def _in_place(self, loops: list[LoaderLoop], whole: Whole) -> Evaluation:
        return whole if self.for_accelerate else _in_place(self.graph, loops, whole)

    def _judged_by_rows(self, loop: LoaderLoop, loader: Variable, moves: list[Move]) -> Gather | Whole:
        if pads_batches(self.graph, loop.module, loop.loader):
            return Whole(loop, "its collate_fn may pad each batch to a length of its own", loop.statement.lineno)
        if collates_graphs(self.graph, loader):
            return Whole(loop, "its batches are graphs", loop.statement.lineno)
        if may_drop_last(self.graph, loop.module, loop.loader):
            return Whole(
                loop, "its loader may drop a last batch, and on N processes would drop more", loop.statement.lineno
            )
        divided = divided_by_length(self.roles, self.graph, loader)
        if divided is not None and divided[0].scope(divided[1]).function is not loop.function:
            return Whole(loop, "a figure is divided by the number of batches", divided[1].lineno, divided[0])
        return judge(self.roles, self.graph, loop, moves)

    def _sources(self, loop: LoaderLoop) -> list[Variable]:
        return chain(self.graph, loop.module.variable(loop.loader))

    def _loaders(self, loops: list[LoaderLoop], evaluations: list[Evaluation]) -> list[Variable]:
        """The loaders to shard: those trained on, and those whose evaluation gathers."""
        apart = {id(e.loop) for e in evaluations if not e.prepares}
        trained: list[Variable] = []
        evaluated: list[Variable] = []
        for loop in loops:
            variable = loop.module.variable(loop.loader)
            if variable is not None and id(loop) not in apart:
                if not is_foreign_loader(self.graph, variable):
                    (trained if loop.trains else evaluated).append(variable)
        return list(dict.fromkeys([*trained, *self._read_by_hand(), *evaluated]))

    def _read_by_hand(self) -> list[Variable]:
        """Loaders whose batches a training loop asks for itself: `next(iterator)`."""
        batches = Batches(self.roles, self.graph)
        found: list[Variable] = []
        for module, call in self.roles.project.calls:
            if is_call_of(call, "next"):
                read = module.statement(call)
                if training_loops(self.graph, self.group.backwards, module, call) and (
                    not isinstance(read, ast.Assign) or feeds_training(self.graph, self.group.backwards, module, read)
                ):
                    found += batches.loaders(module, call) or ()
        return found

    def _per_batch_schedulers(self, loops: list[LoaderLoop], distribution: Distribution) -> list[Variable]:
        """Schedulers stepped inside a loop over a training loader, without a metric.

        A prepared one moves on for all processes at once. Where a count ends the loop there are as many steps on N
        processes as on one, so there it stays as it is; and where a sampler sharded the data before, there are as many as
        there were: only a schedule that is made for the length of the loader has that of all batches from now on.
        """
        found: list[Variable] = []
        for module, call in self.roles.project.calls:
            function = call.func
            if not isinstance(function, ast.Attribute) or function.attr != "step" or call.args or call.keywords:
                continue
            variable = module.variable(function.value)
            if variable is None or not self.roles.of(variable) & Role.SCHEDULER:
                continue
            around = [loop for loop in loops if loop.trains and self._runs_in(loop, module, call)]
            sharded = distribution.joins and any(self._was_sharded(loop, distribution) for loop in around)
            if sharded and not self._is_made_for_a_length(variable):
                continue
            ends = {ended_by(self.graph, loop) for loop in around}
            if Ended.LENGTH in ends:
                raise NotMigrated(_EPOCHS_OF_LENGTH.format(unparse(call)), (module, call))
            if around and Ended.COUNT not in ends:
                found.append(variable)
        return found

    def _is_made_per_round(self, scheduler: Variable, optimizers: list[Variable]) -> bool:
        """Whether a function makes a schedule for an optimizer of its caller, each time that a loop calls it: a warm-up.

        `prepare` is over by then, so it is made of the prepared loader's length, and steps for this process alone.
        """
        functions = {module.scope(statement).function: module for module, statement in self._made_in([scheduler])}
        return any(
            isinstance(around, ast.For | ast.While) and not self._are_made_in(around, caller, optimizers)
            for function, module in functions.items()
            if function is not None and not self._are_made_in(function, module, optimizers)
            for caller, site in self.graph.sites.get(function, ())
            for around in caller.ancestors(site)
        )

    def _are_made_in(self, around: ast.AST, module: Module, variables: list[Variable]) -> bool:
        return any(file is module and module.holds(around, made) for file, made in self._made_in(variables))

    def _made_in(self, variables: list[Variable]) -> list[tuple[Module, ast.stmt]]:
        """The statements that give some objects, under whatever names, what they are."""
        links = [link for variable in variables for link in chain(self.graph, variable)]
        bound = [(link.scope.module, binding) for link in links for binding in link.scope.module.bindings(link)]
        return [(module, binding.statement) for module, binding in bound if binding.kind != "parameter"]

    def _was_sharded(self, loop: LoaderLoop, distribution: Distribution) -> bool:
        built = {call for link in self._sources(loop) for call in self._built(link)}
        return any(shared.call in built for shared in distribution.shared)

    def _built(self, variable: Variable) -> list[ast.expr]:
        return [b.value for b in variable.scope.module.bindings(variable) if b.value is not None]

    def _is_made_for_a_length(self, scheduler: Variable) -> bool:
        """Whether the length of a loader is behind what a schedule is made of."""
        return any(
            is_length(part) and bool(self.roles.role(owner, part.args[0]) & Role.LOADER)  # type: ignore[attr-defined]
            for link in chain(self.graph, scheduler)
            for made in self._built(link)
            for owner, part in behind(self.graph, link.scope.module, made, Role.OPTIMIZER | Role.MODEL)
        )

    def _runs_in(self, loop: LoaderLoop, module: Module, node: ast.AST) -> bool:
        if loop.module is module and any(parent is loop.statement for parent in module.ancestors(node)):
            return True
        function = module.scope(node).function
        return function is not None and function in self.graph.reached_from(loop.statement, loop.module)
