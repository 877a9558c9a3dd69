"""Where a training is set up: its home, what is prepared there, and the place for `prepare`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move, check_later, device_definition
from accel_migrate.analysis.placement.choices import names_rank
from accel_migrate.analysis.placement.overriding import is_overridden
from accel_migrate.analysis.placement.places import NOT_BUILT, find_place
from accel_migrate.analysis.trainings.groups import Group
from accel_migrate.analysis.trainings.participants import Participants
from accel_migrate.analysis.trainings.updates import caller_not_given
from accel_migrate.analysis.values.containers import KEPT, is_looped, kept_in
from accel_migrate.analysis.values.imported import brought_by
from accel_migrate.analysis.values.loops import CallGraph, LoaderLoop, training_loops
from accel_migrate.analysis.values.origins import Where, where
from accel_migrate.analysis.values.provenance import (
    Built,
    Handed,
    Home,
    NotMigrated,
    Place,
    Scattered,
    chain,
    find_homes,
    is_root,
    scattered,
)
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.steppers import only_keeps, wrapped_optimizer
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import all_arguments, unparse
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import STATEMENTS, Function, Module, Scope, Variable

_NOT_PLAIN = Where.NUMBERED | Where.UNKNOWN


@dataclass(frozen=True, eq=False)
class Setup:
    home: Scope
    prepared: tuple[Built, ...]
    uses: tuple[ast.stmt, ...]  # statements at home that start training or evaluation
    place: Place


class _Apart(NotMigrated):
    """An evaluation that is not begun where all else is prepared."""


class SetupFinder:
    def __init__(self, graph: CallGraph, group: Group, handed: tuple[Handed, ...] = ()) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.group = group
        self.handed = handed  # loaders that are prepared elsewhere
        self.filled: set[Variable] = set()  # containers of objects that are prepared under names of their own

    def setup(self, participants: Participants) -> Setup:
        """NotMigrated where the objects, but for those that are prepared elsewhere, cannot be prepared in one place."""
        apart = {built.variable for built, _ in self.handed}
        chains = [links for links in participants.chains if apart.isdisjoint(links)]
        participants = replace(participants, chains=tuple(chains))
        training = {backward.function for backward in self.group.backwards}
        trouble: NotMigrated | None = None
        for home in find_homes(self.graph, chains, training):
            try:
                return self._at(home, participants)
            except _Apart:
                if home.scope.is_class:
                    raise  # a function that an evaluation does not run in is no place for it
            except NotMigrated as found:
                if home.method is None or str(found) != NOT_BUILT:  # a method that builds nothing is no place for it
                    trouble = trouble or found
        raise trouble or Scattered(scattered(self.roles, chains), self.group.backwards[0].call.lineno)

    def _at(self, home: Home, participants: Participants) -> Setup:
        prepared = self._prepared(home, participants)
        self._check_shared_bases(home.scope, prepared)
        self._check_caller(home, prepared, participants.chains)
        uses = self._uses(home.frame, participants.loops, participants.loaders)
        read_whole = [e.loop for e in participants.evaluations if not e.prepares and not e.loop.trains]
        sharing = [loop for loop in participants.loops if loop not in read_whole]
        whole = {*uses}.difference(self._uses(home.frame, tuple(sharing), participants.loaders))
        before = self._made_of_optimizers(home) | self._keepers(home.frame, prepared, participants.aliases)
        module = home.scope.module
        begun = {function for use in uses for function in self.graph.reached_from(use, module)}
        place = find_place(
            self.roles, home, list(prepared), uses, before, lambda each: self._trains(module, each), begun, whole
        )
        self._check_iterators(place, participants.loaders)
        self._check_apart(home, participants)
        prepared = (*prepared, *dict.fromkeys(built for built, _ in self.handed))
        place = replace(place, handed=self.handed)
        return Setup(home.scope if home.scope.is_class else home.frame, prepared, tuple(uses), place)

    def _prepared(self, home: Home, participants: Participants) -> tuple[Built, ...]:
        order = (Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER)
        found: dict[Variable, Built] = {}
        for entry in participants.entries:
            for variable in home.named(chain(self.graph, entry.variable)):
                found[variable] = Built(Role.LOADER, variable, entry.key)
        together: dict[Variable, None] = {}
        for links in participants.chains:
            for variable in self._prepared_at(home, links):
                role = next((role for role in order if self.roles.of(variable) & role), None)
                if role is None:
                    together[variable] = None
                elif variable not in found:
                    found[variable] = Built(role, variable)

        def position(built: Built) -> tuple[int, int]:
            module = home.scope.module
            bound = [b for b in module.bindings(built.variable) if b.kind != "parameter"]
            return order.index(built.role), min((module.position(b.target) for b in bound), default=0)

        named = set(found)
        every = [*found.values(), *[e for v in together if v not in named for e in self._elements(v, named)]]
        if sum(built.every for built in every) > 1:
            names = ", ".join(f"`{built.variable.name}`" for built in every if built.every)
            raise NotMigrated(
                f"how many objects are in each of {names} is not visible to the analysis", _bound(every[-1].variable)
            )
        return tuple(sorted(every, key=position))

    def _prepared_at(self, home: Home, links: list[Variable]) -> list[Variable]:
        """Of the names of one object those at home that hold it before a loop over all of its kind has begun."""
        here, module = home.named(links), home.scope.module
        bound = {v: module.bindings(v) for v in here if self.roles.of(v) & KEPT}
        looped = [v for v, bindings in bound.items() if bindings and all(map(is_looped, bindings))]
        for variable in looped:
            loops = [binding.statement for binding in module.bindings(variable)]
            if any(self._builds_inside(module, loop) for loop in loops):
                return [variable]  # the body of the loop builds its optimizer: each round is a training of its own
        rest = [variable for variable in here if variable not in looped]
        if looped and not rest and not any(link.scope is not home.scope for link in links):
            raise NotMigrated(
                f"`{looped[0].name}` is one after another of what a loop goes through, and what that is made of is "
                "not visible to the analysis, so nothing can be prepared before the loop",
                _bound(looped[0]),
            )
        return rest

    def _elements(self, variable: Variable, named: set[Variable]) -> tuple[Built, ...]:
        """Each object that a list or a dictionary keeps, prepared in its place."""
        module = variable.scope.module
        kept = kept_in(self.roles, variable)
        if kept is None:
            raise NotMigrated(f"what `{variable.name}` holds is not visible to the analysis", _bound(variable))
        if any(module.variable(element) in named for element in kept.elements):
            self.filled.add(variable)
            return ()
        if kept.is_tuple:
            raise NotMigrated(
                f"`{variable.name}` cannot take prepared objects in the place of those it holds; make it a list, or a "
                "dictionary that is written out",
                _bound(variable),
            )
        if kept.keys is None:
            return (Built(kept.role, variable, None, True),)
        return tuple(Built(kept.role, variable, key) for key in kept.keys)

    def _check_shared_bases(self, home: Scope, prepared: tuple[Built, ...]) -> None:
        """What a base class does with the objects it does for all that inherit, and these have no Accelerator."""
        project = self.roles.project
        names = {built.variable.name for built in prepared}
        above = project.all_bases(Definition(home.module, home.node)) if home.is_class else []  # type: ignore[arg-type]
        for base in above:
            owner = base.module.classes[base.node]
            if owner in project.family(home):
                continue
            for node in base.module.walk(base.node, ast.Attribute):
                variable = base.module.variable(node)
                if variable is not None and variable.scope is owner and variable.name in names:
                    raise NotMigrated(
                        f"`{variable.name}` belongs to {base.node.name}, which other classes are derived from too; "
                        "prepare it there by hand",
                        (base.module, node),
                    )

    def _check_caller(self, home: Home, prepared: tuple[Built, ...], chains: tuple[list[Variable], ...]) -> None:
        """A function that is handed everything may be called once for each epoch: prepare belongs where it is built."""
        frame, module = home.frame, home.scope.module
        own = [b.variable for b in prepared if b.variable.scope is frame]
        if not frame.is_function or any(is_root(self.roles, variable) for variable in own):
            return
        function: Function = frame.node  # type: ignore[assignment]
        sites = self.graph.sites.get(function)
        if not sites:
            raise NotMigrated(caller_not_given(function), (module, function))
        if home.method is not None:
            repeated = next((each for each in sites if _is_repeated(*each)), None)
            if repeated is not None:
                reason = (
                    f"{function.name}() trains what {home.scope.node.name} has, and a loop calls it again and again; "  # type: ignore[attr-defined]
                    "set its model, optimizer and loaders in __init__, so that they are prepared once"
                )
                raise NotMigrated(reason, (repeated[0], repeated[1]))
            return
        for links in chains:
            if not any(is_root(self.roles, link) for link in links):
                raise self._out_of_sight(links[-1])
        raise Scattered(scattered(self.roles, list(chains)), (module, function))

    def _check_apart(self, home: Home, participants: Participants) -> None:
        """An evaluation that others may begin before a method has prepared its loader must not count on that."""
        method = home.frame
        inside = {method.node, *self.graph.reached_from(method.node, method.module)}
        for evaluation in participants.evaluations if home.method is not None else ():
            loop = evaluation.loop
            if evaluation.prepares and loop.function not in inside:
                raise _Apart(
                    f"its loader is prepared in {method.node.name}(), which may not have run",  # type: ignore[attr-defined]
                    (loop.module, loop.statement),
                )

    def _out_of_sight(self, parameter: Variable) -> NotMigrated:
        """Why nobody knows where the object behind a parameter is built, told at a call that hands it over."""
        for caller, call, handed in self.graph.given(parameter):
            if handed is not None:
                text = unparse(handed)
                starred = isinstance(handed, ast.Name) and caller.resolve(handed.id, caller.scope(call)) is None
                if starred and "*" in caller.imports:
                    reason = f"`{text}` comes from `import *`, so where it is built is not visible to the analysis"
                else:
                    reason = f"`{text}`, handed over for `{parameter.name}`, is not a variable that could be prepared"
                return NotMigrated(reason, (caller, call))
        return NotMigrated(f"where `{parameter.name}` is built is not visible to the analysis", _bound(parameter))

    def _trains(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement runs a backward pass, itself or by what it calls."""
        return self.graph.runs_any(module, statement, self.group.backwards)

    def _made_of_optimizers(self, home: Home) -> set[Variable]:
        """Objects at home that step an optimizer from within: `prepare` comes before they are made."""
        module = home.scope.module
        names = [Variable(home.frame, name) for name in home.frame.bindings] if not home.frame.is_class else []
        attributes = [variable for variable in module.attribute_bindings if variable.scope in home]
        wrapping = {v for v in [*names, *attributes] if wrapped_optimizer(self.roles, module, v) is not None}
        return wrapping | self.filled

    def _keepers(self, home: Scope, prepared: tuple[Built, ...], aliases: frozenset[Variable]) -> set[Variable]:
        """Objects at home that are handed what is prepared and only keep it for the training, as their class or a run shows."""
        module, kept = home.module, {built.variable for built in prepared}
        keeping = {link.scope.node for link in aliases if link.scope.is_class}
        return {
            variable
            for variable in (Variable(home, name) for name in home.bindings)
            if not self.roles.of(variable)
            for binding in module.bindings(variable)
            if binding.value is not None and kept & _handed(self.roles, module, binding.value)
            if self.roles.followed
            or (
                (made := self.roles.made(module, binding.value)) is not None
                and made.node in keeping
                and only_keeps(self.roles, module, binding.value, kept)
            )
        }

    def _uses(self, home: Scope, loops: tuple[LoaderLoop, ...], loaders: tuple[Variable, ...]) -> list[ast.stmt]:
        """Statements at home that start training or evaluation."""
        module = home.module
        functions = {b.function for b in self.group.backwards} | {loop.function for loop in loops}
        inner = functions - {None, home.node}
        found: list[ast.stmt] = []
        for statement in module.walk(home.node, *STATEMENTS):
            if module.scope(statement) is not home or isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            if (
                any(loop.statement is statement for loop in loops)
                or any(b.module is module and module.statement(b.call) is statement for b in self.group.backwards)
                or self._starts_reading(module, statement, loaders)
            ):
                found.append(self._outermost_loop(module, statement))
            elif inner and not isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
                if self.graph.reached_from(statement, module) & inner or self._hands_on(module, statement, inner):
                    found.append(self._outermost_loop(module, statement))
        return list(dict.fromkeys(found))

    def _hands_on(self, module: Module, statement: ast.stmt, functions: set[Function | None]) -> bool:
        """`optimizer.step(closure)`: whoever is handed a function that trains may call it."""
        for node in module.walk(statement, ast.Name):
            if isinstance(node.ctx, ast.Load):
                target = self.roles.project.definition(module, node)
                if target is not None and target.node in functions:
                    return True
        return False

    def _starts_reading(self, module: Module, statement: ast.stmt, loaders: tuple[Variable, ...]) -> bool:
        """`iterator = iter(loader)`, read while training: from here on the loader must be the prepared one."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        variable = module.variable(statement.value.args[0]) if statement.value.args else None
        if variable is None or not self.roles.role(module, statement.value) & Role.ITERATOR:
            return False
        shared = any(variable in chain(self.graph, loader) for loader in loaders)
        return shared and self._is_read(module, statement.targets[0])

    def _is_read(self, module: Module, iterator: ast.expr) -> bool:
        """Whether a training loop reads on from an iterator; one that is only looked into may stay as it is."""
        variable = module.variable(iterator)
        return variable is None or any(
            training_loops(self.graph, self.group.backwards, module, node) for node in module.reads(variable)
        )

    def _check_iterators(self, place: Place, loaders: tuple[Variable, ...]) -> None:
        """A trainer that starts to read where it is built would go on reading from the loader as it was."""
        module = place.module
        function = module.scope(place.after).function
        for statement in (node for node in module.walk(function or module.tree, ast.Assign)):
            if not place.comes_before(statement) and self._starts_reading(module, statement, loaders):
                raise NotMigrated(
                    f"`{unparse(statement.targets[0])}` starts to read the loader before all is built that is "
                    "prepared with it; make it after the optimizer",
                    (module, statement),
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
                for link in chain(self.graph, variable):
                    for binding in link.scope.module.bindings(link):
                        if any(parent is loop for parent in module.ancestors(binding.statement)):
                            return True
        return False


def _is_repeated(module: Module, call: ast.Call) -> bool:
    """Whether a loop of the function around a call makes it again and again."""
    around = [parent for parent in module.ancestors(call) if module.scope(parent) is module.scope(call)]
    return any(isinstance(parent, ast.For | ast.AsyncFor | ast.While) for parent in around)


def _handed(roles: Roles, module: Module, value: ast.expr) -> set[Variable]:
    """What an object of the project's own classes, a list or a dictionary is made of."""
    parts: list[ast.expr | None] = []
    if isinstance(value, ast.Call) and roles.made(module, value) is not None:
        parts = [*all_arguments(value)]
    elif isinstance(value, ast.Dict):
        parts = [*value.values]
    elif isinstance(value, ast.List | ast.Tuple | ast.Set):
        parts = [*value.elts]
    return {variable for part in parts if part is not None and (variable := module.variable(part)) is not None}


def _bound(variable: Variable) -> tuple[Module, ast.AST]:
    """Where a variable is first bound."""
    module = variable.scope.module
    return module, next((b.statement for b in module.bindings(variable)), module.tree)


def find_device(
    graph: CallGraph, home: Scope, place: Place, moves: list[Move], distribution: Distribution
) -> DeviceDefinition | None:
    """The definition of the device that this training's moves name."""
    named: dict[Variable, None] = {}
    for move in moves:
        if move.device is not None:
            variable = move.module.variable(move.device)
            if variable is not None:
                named.update(dict.fromkeys(chain(graph, variable)))
    order = {module: index for index, module in enumerate(graph.roles.project.modules)}
    made = [d for variable in named if (d := device_definition(graph.roles, variable)) is not None]
    found = [d for d in made if graph.roles.of(d.variable) or not _is_rank(d, distribution)]
    found.sort(key=lambda d: (order[d.module], d.module.position(d.statement)))
    as_text = distribution.rewritten()
    kept_as_text = {d.variable for d in found if as_text.intersection((d.statement, *d.later)) and d.later}
    found = [d for d in found if d.variable not in kept_as_text and not is_overridden(graph, d.variable)]
    near = (home, place.module.scope(place.after))
    loaded = [place.module, *brought_by(graph.roles.project, [place.module])]
    usable = [
        d
        for d in found
        if d.scope in near
        or (not d.scope.is_class and home.node in graph.reached_from(d.scope.node, d.module))
        or (d.scope.parent is None and d.module in loaded and not under_main(d.module, d.statement))
    ]
    if home.is_class:
        _check_inherited(graph, home)
    if usable:
        check_later(usable[0])
    return usable[0] if usable else None


def _check_inherited(graph: CallGraph, home: Scope) -> None:
    """A device that a base class is given is not told to the Accelerator of the class, so it must be what that takes."""
    family = graph.roles.project.family(home)
    links: dict[Variable, None] = {}
    for owner in family:
        for call in owner.module.calls:
            if getattr(call.func, "attr", "") == "to" and owner.module.scope(call).owner_class is owner:
                named = [owner.module.variable(argument) for argument in call.args]
                links.update(dict.fromkeys(v for each in named if each for v in chain(graph, each)))
    above = [v for v in links if v.scope in family or v.scope.owner_class in family]
    above = [v for v in above if v.scope is not home and v.scope.owner_class is not home]
    bound = [(v.scope.module, b.value) for v in links for b in v.scope.module.bindings(v)]
    values = [(module, value) for module, value in bound if value is not None and not isinstance(value, ast.Name)]
    meant = [where(graph.roles, module, value) for module, value in values]
    if above and not (meant and all(each & (Where.GPU | Where.FIRST) and not each & _NOT_PLAIN for each in meant)):
        raise NotMigrated(
            f"`{above[0].name}` is what a base class is given, and the Accelerator of "
            f"{home.node.name} would not be told of it",  # type: ignore[attr-defined]
            _bound(above[0]),
        )


def _is_rank(definition: DeviceDefinition, distribution: Distribution) -> bool:
    """`gpu = int(os.environ["LOCAL_RANK"])`: a number of this process, by which the model was moved."""
    ranks = distribution.ranks
    return definition.variable in ranks or any(names_rank(definition.module, v, ranks) for v in definition.values)
