"""What is left of the script's own bookkeeping once the Accelerator does the work."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from accel_migrate.analysis.distribution.replacements import ACCELERATOR, Distribution, Replacement
from accel_migrate.analysis.distribution.unwrapping import deferred, unwrapped
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move
from accel_migrate.analysis.placement.outside_device import OutsideDevice
from accel_migrate.analysis.placement.reach import NAME, Reach
from accel_migrate.analysis.placement.respelling import Respelling
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated, Place
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import all_arguments, calls_method, unparse, walk
from accel_migrate.flow.scopes import Function, Module, Scope, Variable
from accel_migrate.flow.sequence import comes_first

# What a wrapper is told of the forwards to come; without one each loss shows which weights it came through.
_OF_FORWARDS = "find_unused_parameters"
# What decides how a model trains, or whether it can, as a wrapper has it that is not told.
_DEFAULTS = {"broadcast_buffers": "True", "find_unused_parameters": "False", "static_graph": "False"}


def with_unwrapping(
    distribution: Distribution,
    modules: Iterable[Module],
    home: Scope,
    place: Place,
    held: frozenset[Variable],
    unheld: frozenset[Variable],
    wraps: bool,
) -> Distribution:
    """The distribution with all that is asked of the wrapper of a model that was wrapped by hand, prepared or not."""
    if not distribution.wrappings:
        return distribution
    gone = {part for node in distribution.gone() for part in walk(node)}
    found: list[Replacement] = []
    for module in modules:
        found += [*unwrapped(module, home, place, held, unheld, wraps), *deferred(module, held)]
    asked = [replacement for replacement in found if replacement.node not in gone]
    return replace(distribution, replacements=(*distribution.replacements, *asked))


def through_trainer(roles: Roles, distribution: Distribution, home: Scope) -> Distribution:
    """Pieces outside of a trainer's class ask the trainer for its Accelerator, once they have one."""
    replacements = []
    for replacement in distribution.replacements:
        scope = replacement.module.scope(replacement.node)
        if replacement.needs_accelerator and replacement.text is not None and scope.owner_class is not home:
            trainer = _trainer(roles, replacement.module, scope, replacement.statement, home)
            if trainer is not None:
                replacement = replace(replacement, text=replacement.text.replace(ACCELERATOR, f"{trainer}.accelerator"))
        replacements.append(replacement)
    return replace(distribution, replacements=tuple(replacements))


def _trainer(roles: Roles, module: Module, scope: Scope, before: ast.stmt, home: Scope) -> str | None:
    for name, bindings in scope.bindings.items():
        for binding in bindings:
            if isinstance(binding.value, ast.Call) and comes_first(module, binding.statement, before):
                target = roles.target(module, binding.value)
                if target is not None and target.node is home.node and len(bindings) == 1:
                    return name
    return None


def carried_settings(distribution: Distribution, carrier: Respelling, wraps: bool) -> tuple[tuple[str, str], ...]:
    """What DistributedDataParallel was told, as the place that makes the Accelerator writes it."""
    found = []
    for name, (module, value) in _told(distribution, wraps).items():
        carried = carrier.carried(module, value)
        if carried is None:
            raise NotMigrated(f"`{name}` is not known where the Accelerator is made", (module, value))
        found.append((name, unparse(carried)))
    return tuple(found)


def _told(distribution: Distribution, wraps: bool) -> dict[str, tuple[Module, ast.expr]]:
    """The settings of all wrappers; NotMigrated where they differ in one that would then hold for the others as well."""
    wrappings = [wrapping for wrapping in distribution.wrappings if not wrapping.is_data_parallel]
    found: dict[str, tuple[Module, ast.expr]] = {}
    for wrapping in wrappings:
        for name, value in wrapping.settings.items():
            texts = {unparse(w.settings[name]) if name in w.settings else _DEFAULTS.get(name) for w in wrappings}
            if name == _OF_FORWARDS:
                if not wraps or unparse(value) == "False":
                    continue
                texts.discard("False")  # to look for them costs the other models no more than time
            if len(texts) > 1 and name in _DEFAULTS:
                raise NotMigrated(
                    f"`{name}` is not the same wherever a model is put into DistributedDataParallel, and the Accelerator has "
                    "one for all models",
                    (wrapping.module, wrapping.call),
                )
            found.setdefault(name, (wrapping.module, value))
    return found


def carried_timeout(distribution: Distribution, carrier: Respelling) -> tuple[tuple[str, str], ...]:
    """How long collectives may wait, as the place that makes the Accelerator writes it."""
    if distribution.timeout is None:
        return ()
    module, value = distribution.timeout
    carried = carrier.carried(module, value)
    if carried is None:
        raise NotMigrated(
            "the timeout of the process group is not known where the Accelerator is made", (module, value)
        )
    return (("timeout", unparse(carried)),)


def names_device(move: Move, distribution: Distribution) -> bool:
    """Whether a move goes on naming its device by a variable: one that holds a device, not the number of a process."""
    if move.device is None or (calls_method(move.call, "cuda")):
        return False
    variable = move.module.variable(move.device)
    return variable is not None and variable not in distribution.ranks and not variable.name.endswith("local_rank")


def rank_parameters(
    distribution: Distribution, dropped: list[Move], kept: list[Move], graph: CallGraph
) -> dict[Function, tuple[Module, str]]:
    """Parameters that told a function which process it is, and that nothing reads once the Accelerator is there."""
    covered = {part for replacement in distribution.replacements for part in walk(replacement.node)}
    covered |= {part for node in distribution.gone() for part in walk(node)}
    for move in (*dropped, *kept):
        covered |= {part for argument in move.call.args for part in walk(argument)}
    candidates: dict[Function, tuple[Module, str]] = {}
    for variable in distribution.ranks:
        module, function = variable.scope.module, variable.scope.node
        if {b.kind for b in module.bindings(variable)} == {"parameter"} and function in graph.sites:
            candidates[function] = (module, variable.name)
    while True:
        handed = covered | _handed(candidates, graph)
        lost = [f for f, (m, name) in candidates.items() if _is_read(Variable(m.functions[f], name), frozenset(handed))]
        if not lost:
            return candidates
        for function in lost:
            del candidates[function]


def move_parameters(dropped: list[Move], graph: CallGraph) -> dict[Function, tuple[Module, str]]:
    """Parameters that told a function where batches go, and that nothing reads once they are there."""
    told = {part: move.module for move in dropped for argument in all_arguments(move.call) for part in walk(argument)}
    found: dict[Function, tuple[Module, str]] = {}
    for node, module in told.items():
        variable = module.variable(node) if isinstance(node, ast.Name) else None
        if variable is None or {b.kind for b in module.bindings(variable)} != {"parameter"}:
            continue
        if variable.name == variable.scope.self_name:
            continue  # which no caller hands over
        if variable.scope.node in graph.sites and not _is_read(variable, frozenset(told)):
            found[variable.scope.node] = (module, variable.name)
    return found


def _handed(parameters: dict[Function, tuple[Module, str]], graph: CallGraph) -> set[ast.AST]:
    """The arguments that callers pass for these parameters."""
    handed = [graph.handed(Variable(module.functions[f], name)) for f, (module, name) in parameters.items()]
    return {part for each in handed for _, argument in each for part in walk(argument)}


def passed_instead(reach: Reach, graph: CallGraph) -> set[ast.AST]:
    """Arguments whose place the Accelerator takes."""
    taken = {f: (p.module, p.scaler) for f, p in reach.parameters.items() if p.device is None and p.scaler is not None}
    return _handed(taken, graph)


def tidied(
    distribution: Distribution,
    gone: frozenset[ast.AST],
    device: DeviceDefinition | None,
    passed: set[ast.AST],
    start: ast.stmt,
    given: OutsideDevice | None,
) -> tuple[Distribution, tuple[str, ...]]:
    """Without definitions that nothing needs any more, and what a spawned function must now ask by itself."""
    replacements = []
    replaced = set(device.module.walk(device.statement)) if device is not None else set()
    for replacement in distribution.replacements:
        if replacement.node in replaced or replacement.node in passed:
            continue
        statement = replacement.module.parents[replacement.node]
        if replacement.code == "AM704" and isinstance(statement, ast.Assign) and statement.value is replacement.node:
            variables = [replacement.module.variable(t) for t in statement.targets if isinstance(t, ast.Name)]
            if len(variables) == len(statement.targets) and not any(_is_read(v, gone) for v in variables):
                replacement = replace(replacement, node=statement, text=None, message="nothing asks for it any more")
        elif isinstance(statement, ast.Assign) and _is_said_already(replacement, statement, start, given):
            replacement = replace(replacement, node=statement, text=None)
        replacements.append(replacement)
    rebound = []
    spawned = distribution.spawned
    for name, attribute in spawned.lost if spawned is not None else ():
        assert spawned is not None
        if _is_read(Variable(spawned.module.functions[spawned.function], name), gone):
            rebound.append(f"{name} = accelerator.{attribute}")
    if spawned is not None and spawned.counted is not None:
        rebound.append(f"{unparse(spawned.counted.targets[0])} = accelerator.{spawned.number}")
    if distribution.worker is not None:
        rebound += distribution.worker.told(start, gone)
    return replace(distribution, replacements=tuple(replacements)), tuple(rebound)


def _is_said_already(
    replacement: Replacement, statement: ast.Assign, start: ast.stmt, given: OutsideDevice | None
) -> bool:
    """Whether a device would be set to what the line below the Accelerator sets it to, and nothing else does in between."""
    if given is None or replacement.text is None or replacement.node is not statement.value:
        return False
    module = given.variable.scope.module
    bindings = module.bindings(given.variable)
    later = [b.statement for b in bindings if not comes_first(module, b.statement, start)]
    text = f"{unparse(statement.targets[0])} = {replacement.text.replace(ACCELERATOR, NAME)}"
    return later == [statement] and text in given.rebound()


def _is_read(variable: Variable | None, gone: frozenset[ast.AST]) -> bool:
    if variable is None:
        return True
    return any(node not in gone for node in variable.scope.module.reads(variable))
