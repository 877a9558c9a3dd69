"""Where the Accelerator is made: before the first statement that uses it, and after what its arguments need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.moves.cuda_bound import is_bound_to_cuda, or_without_cuda
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move, moves_in
from accel_migrate.analysis.placement.choices import Choice, below_definition, find_choice
from accel_migrate.analysis.placement.outside_device import OutsideDevice
from accel_migrate.analysis.placement.overriding import names_gpus, overrides
from accel_migrate.analysis.placement.reach import Reach
from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.origins import Where, where
from accel_migrate.analysis.values.provenance import NotMigrated, Place
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.effects import only_reads
from accel_migrate.flow.closure import closure
from accel_migrate.flow.main_guard import asks_for_name
from accel_migrate.flow.nodes import all_arguments, children, is_call_of, own_statements, walk
from accel_migrate.flow.scopes import Function, Module, Scope, Variable
from accel_migrate.flow.sequence import follows

_UNKNOWN = "the Accelerator is needed here, before the options that it is made from are known, or the GPUs named"


@dataclass(frozen=True, eq=False)
class Start:
    """`accelerator = Accelerator(...)` goes before `statement`, or takes its place when that defines the device."""

    module: Module
    statement: ast.stmt
    block: list[ast.stmt]
    cpu: str | None  # the script's own wish for the CPU, as an expression
    at_prepare: bool  # right before prepare, after `statement`
    tied: str | None = None  # what ties a script without a device to the CPU
    moves: bool = False  # the script names no device and nothing ties it to the CPU: it goes to a GPU now
    joins: bool = False  # `statement` is where the script joined the processes: its comments speak of that
    device: str | None = None  # the script's own choice of a device, as an expression
    stays: bool = False  # what decides on the device stays where it is, above

    def covers(self, node: ast.AST) -> bool:
        """Whether a node of the same scope runs only once the Accelerator is made."""
        made = self.block.index(self.statement) + self.at_prepare
        return made < len(self.block) and self.module.spans(self.block[made], self.block[-1], node)


@dataclass(eq=False)
class StartFinder:
    """Finds where the Accelerator is made for a training, and what it is told there of the device."""

    roles: Roles
    graph: CallGraph
    creation: Scope
    place: Place
    device: DeviceDefinition | None  # that the creating scope has itself
    given: OutsideDevice | None
    dropped: list[Move]
    kept: list[Move]
    reach: Reach
    distribution: Distribution
    needs: list[tuple[Module, ast.AST]]  # the places that use the Accelerator
    gone: frozenset[ast.AST]
    modules: tuple[Module, ...]
    aliases: frozenset[Variable]
    prints_once: bool
    bound: bool  # a device of the script stays beside the Accelerator's, and is CUDA or the CPU

    def __post_init__(self) -> None:
        self.module = self.creation.module

    def start(self) -> Start:
        roles, graph, module = self.roles, self.graph, self.module
        choice = find_choice(
            roles, self.creation, self.device, self.given, [*self.dropped, *self.kept], self.distribution
        )
        if choice == Choice(cpu=choice.cpu) and choice.cpu != "True":
            named, home = _imported_device(roles, module, [*self.dropped, *self.kept])
            files = [*self.modules, *([home] if home is not None else [])]
            others = any(b"mps" in module.source.data or b"xpu" in module.source.data for module in files)
            if is_bound_to_cuda(graph, self.creation, self.modules, self.dropped, self.kept, self.aliases, self.bound):
                if not others and module.imports.get("torch") == "torch":
                    choice = Choice(cpu=or_without_cuda(choice.cpu, module, self.creation))
                elif choice.cpu is None and named is not None:
                    choice = Choice(device=named)
        start = self._placed(choice.cpu or choice.device, choice.stays)
        guarded = choice.cpu if self.device is None and self.given is None else None
        if self.creation.is_class and guarded is not None and not _knows(start, guarded):
            raise NotMigrated(_UNKNOWN, (start.module, start.statement))
        return replace(start, cpu=choice.cpu, device=choice.device, stays=choice.stays)

    def _placed(self, cpu: str | None, stays: bool) -> Start:
        roles, graph, module, creation, place = self.roles, self.graph, self.module, self.creation, self.place
        early, device = self._early(), self.device
        anchor: ast.stmt
        if device is not None and _is_behind(place, device):
            device = None  # it gets the Accelerator's where it is named
        wished = names_in(cpu)
        if device is not None:
            anchor = below_definition(device) if stays else device.statement
        elif creation is place.module.scope(place.after) or creation.is_class:
            anchor = place.after
        else:
            anchor = self._way_home()
        block = place.block if anchor is place.after else module.block(anchor)
        if not creation.is_class:
            anchor, block = self._above_all(anchor, block, early, wished)
        index = block.index(anchor)
        first = self._first_piece(block)
        earliest = top = known = 0
        for position, statement in enumerate(block[: min(index, first) + 1]):
            if _binds(module, statement, wished):
                known = position + 1
            elif _parses_arguments(statement) and position < first:
                earliest = position + 1
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                top = position + 1
        late = [
            position
            for position in range(index)
            if overrides(graph, module, block[position]) or names_gpus(graph, module, block[position])
        ]
        known = max([known, *[position + 1 for position in late]])
        earliest = max(earliest, known)
        users = _users(self.reach, module, early) | _on_this_gpu(roles, module, self.dropped)
        for position, statement in enumerate(block[: index + 1]):
            if not creation.is_class and self._needs(statement, early, users):
                if position < known:
                    raise NotMigrated(_UNKNOWN, (module, statement))
                return Start(module, statement, block, cpu, False, joins=position == first)
            if position < max(earliest, top):
                continue
            if position == first < index:
                return Start(module, statement, block, cpu, False, joins=True)
            # A script of many processes may print who it is.
            prints = (self.prints_once or self.distribution.replacements) and any(
                _is_print(module, call) for call in _own_calls(statement)
            )
            if prints and (first < index or not creation.is_class):
                return Start(module, statement, block, cpu, False)
        if device is not None or anchor is not place.after:
            return Start(module, block[max(index, known)], block, cpu, False)
        if creation.is_class:
            moved = [move.call for move in self.kept if move.module is module]
            builds = creation.constructor
            before = [builds.body] if builds is not None and builds is not module.scope(place.after).function else []
            for within, last in (*[(body, len(body)) for body in before], (block, index + 1)):
                for statement in within[:last]:
                    if any(module.holds(statement, call) for call in moved):
                        return Start(module, statement, within, cpu, False)
        binding = [position for position, statement in enumerate(block) if _binds(module, statement, wished)]
        if binding and binding[0] > index:
            raise NotMigrated(_UNKNOWN, (module, anchor))
        return Start(module, anchor, block, cpu, True)

    def _early(self) -> list[ast.AST]:
        """Everything in the file that will read the Accelerator, or what it tells a spawned function."""
        found: list[ast.AST] = [
            c for f in self.reach.parameters for caller, c in self.graph.sites[f] if caller is self.module
        ]
        found += [m.call for m in self.kept if m.module is self.module and _names_no_variable(m)]
        found += [statement for _, statement in (*self.place.apart, *self.place.shared)] + [
            one.after for one in self.place.later
        ]
        found += self.given.reads if self.given is not None else ()
        found += [node for owner, node in self.needs if owner is self.module and node is not self.place.after]
        asked = [p for p in self.distribution.replacements if p.optional and p.module is self.module]
        found += [p.node for p in asked if self.reach.spelled(self.module, p.node) is not None]
        spawned = self.distribution.spawned
        if spawned is not None and spawned.module is self.module:
            told = {name for name, _ in spawned.lost}
            for node in self.module.walk(spawned.function, ast.Name):
                if node.id in told and isinstance(node.ctx, ast.Load) and node not in self.gone:
                    found.append(node)
        return found

    def _above_all(
        self, anchor: ast.stmt, block: list[ast.stmt], early: list[ast.AST], wished: set[str]
    ) -> tuple[ast.stmt, list[ast.stmt]]:
        """The anchor as a statement of a block that no loop repeats and that every use in the scope is under."""
        module = self.module
        own = [n for n in early if n in module.parents and module.scope(n).function is self.creation.function]
        while True:
            parent = module.parents.get(anchor)
            if not isinstance(parent, ast.stmt) or isinstance(
                parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ):
                return anchor, block
            repeats = isinstance(parent, ast.For | ast.AsyncFor | ast.While)
            chooses = isinstance(parent, ast.If) and not asks_for_name(parent.test)
            outside = not all(any(module.holds(statement, node) for statement in block) for node in own)
            if not (repeats or chooses or outside):
                return anchor, block
            if any(_binds(module, statement, wished) for statement in block):
                if repeats or outside:
                    raise NotMigrated(
                        "the options that the Accelerator is made from are known only further in than it is needed",
                        (module, anchor),
                    )
                return anchor, block
            anchor = parent
            block = module.block(parent)

    def _first_piece(self, block: list[ast.stmt]) -> int:
        """The first statement of a block that joins the processes or asks who this one is, by itself or in a call."""
        asked = [p for p in self.distribution.replacements if p.code in ("AM701", "AM704", "AM705") and not p.optional]
        inside = {p.module.scope(p.node).function for p in asked} - {None}
        for position, statement in enumerate(block):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if any(p.module is self.module and self.module.holds(statement, p.node) for p in asked):
                return position
            if self.graph.reached_from(statement, self.module) & inside:
                return position
        return len(block)

    def _way_home(self) -> ast.stmt:
        """The statement of the creating scope from which the place of `prepare` is reached."""
        module, place = self.module, self.place
        home = place.module.scope(place.after).function
        for node in module.walk(self.creation.node, ast.Expr, ast.Assign, ast.Return):
            if module.scope(node) is self.creation:
                if home in self.graph.reached_from(node, module):
                    return node
        raise NotMigrated(
            "how the training is reached from where processes are joined is not visible to the analysis",
            place.after.lineno,
        )

    def _needs(self, statement: ast.stmt, early: list[ast.AST], users: set[Function]) -> bool:
        """Whether a statement uses the Accelerator, by itself or through a function."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return False
        module = self.module
        if (
            users
            and (self.graph.reached_from(statement, module) | _constructors(self.roles, module, statement)) & users
        ):
            return True
        return any(
            node in module.parents and module.scope(node) is self.creation and module.holds(statement, node)
            for node in early
        )


def _knows(start: Start, expression: str) -> bool:
    """Whether what an object asks of itself, or its constructor of a parameter, has its last value where the start is."""
    module, inside = start.module, start.module.scope(start.statement)
    above = start.block[: start.block.index(start.statement) + start.at_prepare]
    for node in walk(ast.parse(expression)):
        variable = module.variable_in(node, inside)
        if variable is None or module.is_import(variable):
            continue
        of_object = variable.scope is inside.owner_class
        known = isinstance(node, ast.Attribute) and not (of_object and variable.name.count(".") == 1)
        bound = module.bindings(variable)
        if not (bound or known) or not all(b.kind == "parameter" or b.statement in above for b in bound):
            return False
        if isinstance(node, ast.Name) and node.id != inside.self_name and inside.name != "__init__":
            return False
    return True


def _imported_device(roles: Roles, module: Module, moves: list[Move]) -> tuple[str | None, Module | None]:
    """`config.DEVICE` as the file that makes the Accelerator names it, and the file that sets it."""
    for move in moves:
        device = move.device if move.module is module else None
        dotted = module.qualified(device) if device is not None else None
        variable = roles.project.imported_variable(module, dotted) if dotted else None
        if device is not None and variable is not None:
            if where(roles, module, device) == Where.CPU | Where.GPU:
                return module.source.code(device), variable.scope.module
    return None, None


def _is_behind(place: Place, device: DeviceDefinition) -> bool:
    """Whether the script names its device only below the place of `prepare`, which cannot wait for that."""
    block = place.block
    if place.module is not device.module or place.after not in block:
        return False
    below = block[block.index(place.after) + 1 :]
    return any(device.module.holds(statement, device.statement) for statement in below)


def names_in(expression: str | None) -> set[str]:
    tree = ast.parse(expression) if expression is not None else ast.Module([], [])
    return {node.id for node in walk(tree) if isinstance(node, ast.Name)}


def put_off(start: Start, device: DeviceDefinition | None) -> Iterator[Start]:
    """The starts behind each of the plain settings that follow the device's definition: its arguments may name them."""
    if device is None or start.statement is not device.statement:
        return
    index = start.block.index(start.statement) + 1
    while index + 1 < len(start.block) and _is_setting(start.module, start.block[index], device.variable):
        index += 1
        yield replace(start, statement=start.block[index])


def _is_setting(module: Module, statement: ast.stmt, device: Variable) -> bool:
    if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
        return False
    # What it calls sees no device that is known in this function alone.
    alone = device.scope.is_function and all(module.scope(read) is device.scope for read in module.reads(device))
    return (only_reads(statement.value) or alone) and not any(
        module.variable(node) == device for node in module.walk(statement.value, ast.Name)
    )


def after_names(start: Start, expression: str | None) -> Start:
    """The start, moved down behind what its arguments are made of; never past its own anchor."""
    names = names_in(expression)
    index = start.block.index(start.statement)
    bound = [i for i, s in enumerate(start.block) if _binds(start.module, s, names)]
    if not bound or any(i < index for i in bound) or start.at_prepare:
        return start
    raise NotMigrated("the precision is chosen only after the Accelerator is needed", (start.module, start.statement))


def _users(reach: Reach, module: Module, early: list[ast.AST]) -> set[Function]:
    """Functions that see the Accelerator as a global and use it wherever they are called."""
    if reach.everywhere is not module:
        return set()
    nodes = [node for node in early if node in module.parents]
    functions = {module.scope(node).function for node in nodes}
    return {function for function in functions if function is not None and function not in reach.parameters}


def _on_this_gpu(roles: Roles, home: Module, dropped: list[Move]) -> set[Function]:
    """Functions that go on moving things to "the" GPU: which one that is, the Accelerator says to each process."""
    gone = {move.call for move in dropped}
    moves = [m for module in loaded_with(roles.project, home) for m in moves_in(roles, module) if m.call not in gone]
    to_gpu = [m for m in moves if m.device is None or where(roles, m.module, m.device) & Where.GPU]
    return {function for m in to_gpu if (function := m.module.scope(m.call).function) is not None}


def _names_no_variable(move: Move) -> bool:
    """`.cuda()`, `.to("cuda:0")`, `.to(config.DEVICE)`: the Accelerator's device is written out in its place.

    Not in that of `.to(DEVICE)` of an import, which goes to the GPU of the process once the Accelerator has chosen that.
    """
    variable = move.module.variable(move.device) if move.device is not None else None
    return variable is None or any(binding.kind == "import" for binding in move.module.bindings(variable))


def _constructors(roles: Roles, module: Module, statement: ast.stmt) -> set[Function]:
    """The `__init__` of each class of the project that a statement makes an object of."""
    made = [target for call in _own_calls(statement) if (target := roles.target(module, call)) is not None]
    bodies = [target.module.classes[target.node] for target in made if isinstance(target.node, ast.ClassDef)]
    return {owner.constructor for owner in bodies if owner.constructor is not None}


def printing(
    graph: CallGraph, reach: Reach, start: Start, modules: tuple[Module, ...], uses: list[ast.stmt]
) -> Iterator[tuple[Module, ast.Call]]:
    """Every `print` that runs after the Accelerator is made and has it in reach."""
    early: set[Function] = set()
    late: set[Function] = set()
    for statement in own_statements(reach.creation.node):
        if any(isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) for child in children(statement)):
            continue  # what it holds is asked by itself
        side = late if start.covers(statement) else early
        side |= graph.reached_from(statement, start.module)
    for statement in uses:
        late |= graph.reached_from(statement, start.module)
    for module in modules:
        for call in module.calls:
            if not _is_print(module, call) or reach.spelled(module, call) is None:
                continue
            function = module.scope(call).function
            if reach.by_class is not None and function is not None and function.name == "__init__":
                continue
            handed = module.scope(call).owner_class is reach.by_class is not None
            if function is not None and function is not reach.creation.node and function not in reach.parameters:
                below = module is start.module and follows(module, start.statement, function)
                closure = below and module.functions[function].parent is module.scope(start.statement)
                if not closure and (function in early or not (handed or function in late)):
                    continue
            if function is reach.creation.node or (function is None and reach.creation.parent is None):
                if not start.covers(call):
                    continue
            yield module, call


def device_is_needed(device: DeviceDefinition, gone: frozenset[ast.AST], reach: Reach, graph: CallGraph) -> bool:
    """Whether anything still reads the device's variable once moves and replaced parameters are gone."""
    module, variable = device.module, device.variable
    if "." in variable.name:
        return True
    passed: set[ast.AST] = set(module.walk(device.statement))
    for function, parameter in reach.parameters.items():
        if parameter.device is None:
            continue
        for caller, call in graph.sites.get(function, ()):
            for argument in all_arguments(call):
                if caller is module and module.variable(argument) == variable:
                    passed.add(argument)
    return any(node not in gone and node not in passed for node in module.reads(variable))


def _own_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Calls that run with the statement, not those of functions it defines."""
    apart = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    first: list[ast.AST] = [statement]
    found = closure(first, lambda node: [] if isinstance(node, apart) else children(node))
    yield from (node for node in found if isinstance(node, ast.Call))


def _is_print(module: Module, call: ast.Call) -> bool:
    if not is_call_of(call, "print"):
        return False
    if any(keyword.arg == "file" for keyword in call.keywords):
        return False
    return module.resolve("print", module.scope(call)) is None and isinstance(module.parents[call], ast.Expr)


def _binds(module: Module, statement: ast.stmt, names: set[str]) -> bool:
    return bool(names) and any(
        node.id in names and isinstance(node.ctx, ast.Store) for node in module.walk(statement, ast.Name)
    )


def _parses_arguments(statement: ast.stmt) -> bool:
    """Before the arguments are parsed a wrong flag must end the script, not start processes."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("parse_args", "add_argument", "parse_known_args")
        for node in walk(statement)
    ) and not isinstance(statement, ast.FunctionDef | ast.ClassDef)
