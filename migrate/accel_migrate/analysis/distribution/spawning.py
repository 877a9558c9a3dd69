"""Processes that the script starts itself, with torch.multiprocessing.spawn."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from accel_migrate.analysis.distribution.ranks import Ranks
from accel_migrate.analysis.distribution.replacements import Replacement, Spawned
from accel_migrate.analysis.distribution.workers import SPAWN
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.flow.nodes import positional_parameters, unparse
from accel_migrate.flow.scopes import Function, Module, Variable

CODE = "AM706"
_JOIN = "distributed.init_process_group"
_ON_THIS_MACHINE = {"process_index": "local_process_index", "num_processes": "local_num_processes"}
_WORLD = re.compile(r"(^|[._])(world_size|nprocs?|n_?gpus?|num_gpus|ngpus_per_node|n_procs|num_processes)$", re.I)


def find_spawned(graph: CallGraph, modules: list[Module], ranks: Ranks) -> Spawned | None:
    """The one call of mp.spawn, where it is understood."""
    calls = [(m, call) for m in modules for call in m.calls if m.qualified(call.func) in SPAWN]
    if not calls:
        return None
    module, call = calls[0]
    target = graph.roles.project.definition(module, call.args[0]) if call.args else None
    said = dict(zip(("fn", "args", "nprocs", "join"), call.args)) | {k.arg: k.value for k in call.keywords}
    handed = said.get("args", ast.Tuple([], ast.Load()))
    if len(calls) > 1 or target is None or target.module is not module or not isinstance(handed, ast.Tuple):
        raise NotMigrated("which function mp.spawn runs, and with what, is not visible to the analysis", (module, call))
    if not isinstance(module.parents[call], ast.Expr):
        raise NotMigrated("what mp.spawn returns is used", (module, call))
    function = target.node
    assert not isinstance(function, ast.ClassDef)
    parameters = positional_parameters(function)
    if len(parameters) != len(handed.elts) + 1:
        raise NotMigrated("mp.spawn hands over another number of arguments than its function takes", (module, call))
    spawned = _spawned(ranks, module, call, function, list(zip(parameters[1:], handed.elts)), said.get("nprocs"))
    sites = graph.sites.get(function, [])
    if not sites:
        return spawned
    choice = _choice(spawned, sites)
    if choice is None:
        raise NotMigrated(
            f"{function.name}() is spawned and also called: the script chooses by itself how it is started; "
            "keep the call, and start it with `accel launch`",
            (module, call),
        )
    return replace(spawned, choice=choice)


def _choice(spawned: Spawned, sites: list[tuple[Module, ast.Call]]) -> ast.If | None:
    """The `if` that spawns, or else calls the same function as the only process: `main(0, 1, args)`."""
    module, function = spawned.module, spawned.function
    choice = module.parents[module.statement(spawned.call)]
    if len(sites) != 1 or not isinstance(choice, ast.If):
        return None
    call = sites[0][1]
    bodies = (choice.body, choice.orelse)
    alone = all(len(body) == 1 and isinstance(body[0], ast.Expr) for body in bodies)
    if not alone or module.statement(call) is not choice.orelse[0] or call.keywords:
        return None
    parameters = [a.arg for a in positional_parameters(function)]
    lost = dict(spawned.lost)
    only = {"process_index": "0", "local_process_index": "0", "num_processes": "1", "local_num_processes": "1"}
    told = dict(zip(parameters, [unparse(argument) for argument in call.args]))
    kept = [text for name, text in told.items() if name not in lost]
    if len(told) != len(parameters) or kept != [unparse(argument) for argument in spawned.arguments]:
        return None
    count = [unparse(k.value) for k in spawned.call.keywords if k.arg == "nprocs"]
    as_one = all(
        told[name] in (only[attribute], *count[: attribute.endswith("num_processes")])
        for name, attribute in lost.items()
    )
    return choice if as_one else None


def _spawned(
    ranks: Ranks,
    module: Module,
    call: ast.Call,
    function: Function,
    handed: list[tuple[ast.arg, ast.expr]],
    count: ast.expr | None,
) -> Spawned:
    scope = module.functions[function]
    first = positional_parameters(function)[0].arg
    lost = [(first, "process_index")]
    kept = []
    for parameter, argument in handed:
        is_world = count is not None and unparse(argument) == unparse(count)
        if is_world or (_WORLD.search(unparse(argument)) and isinstance(argument, ast.Name)):
            lost.append((parameter.arg, "num_processes"))
        else:
            kept.append(argument)
    before = dict(ranks.held)
    ranks.hold({Variable(scope, name): attribute for name, attribute in lost})
    number = "num_processes"
    if _works_out_rank(ranks):
        number = _ON_THIS_MACHINE[number]
        lost = [(name, _ON_THIS_MACHINE[attribute]) for name, attribute in lost]
        ranks.held = before
        ranks.hold({Variable(scope, name): attribute for name, attribute in lost})
    counted = _counted(module, kept, parameters_of(function, lost))
    return Spawned(module, call, function, tuple(kept), tuple(lost), counted, number=number)


def _works_out_rank(ranks: Ranks) -> bool:
    """Whether a process group is told another rank than the number in mp.spawn: that one counts on this machine alone."""
    for module, call in ranks.roles.project.calls:
        if module.full_name(call.func).endswith(_JOIN):
            told = [keyword.value for keyword in call.keywords if keyword.arg == "rank"] + call.args[4:5]
            if any(ranks.attribute(module, rank) != "process_index" for rank in told):
                return True
    return False


def parameters_of(function: Function, lost: list[tuple[str, str]]) -> list[str]:
    """The parameters that stay."""
    gone = {name for name, _ in lost}
    return [a.arg for a in positional_parameters(function) if a.arg not in gone]


def _counted(module: Module, handed: list[ast.expr], parameters: list[str]) -> ast.Assign | None:
    """The number of GPUs in an attribute of something that is handed over under its own name."""
    shared = {a.id for a, name in zip(handed, parameters) if isinstance(a, ast.Name) and a.id == name}
    for _, statement in _gpu_counts(module):
        target = statement.targets[0]
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in shared:
            return statement
    return None


def world_counts(module: Module, spawned: Spawned) -> Iterator[Replacement]:
    """`nprocs = torch.cuda.device_count()`, for which a spawning function started one process each."""
    for _, statement in _gpu_counts(module):
        worked_out = _worked_out(module, statement, spawned)
        if worked_out is not None:
            text = unparse(statement.targets[0])
            raise NotMigrated(
                f"`{text}` counts GPUs before the processes are started, and this is worked out from it",
                (module, worked_out),
            )
        if statement is spawned.counted or _only_for(module, statement, spawned):
            yield Replacement(CODE, module, statement, None, "the launcher says how many processes there are")
        elif isinstance(statement.targets[0], ast.Attribute):
            text = unparse(statement.targets[0])
            raise NotMigrated(f"`{text}` counts GPUs, and the spawned function reads it", (module, statement))


def _gpu_counts(module: Module) -> Iterator[tuple[ast.Call, ast.Assign]]:
    for call in module.calls:
        if module.qualified(call.func) in ("torch.cuda.device_count", "torch.accelerator.device_count"):
            statement = module.parents[call]
            if isinstance(statement, ast.Assign) and (
                _WORLD.search(unparse(statement.targets[0])) or _counts_processes(module, statement)
            ):
                yield call, statement


def _counts_processes(module: Module, statement: ast.Assign) -> bool:
    """`n = torch.cuda.device_count()` for `mp.spawn(run, nprocs=n)`."""
    name = unparse(statement.targets[0])
    return any(
        keyword.arg == "nprocs" and unparse(keyword.value) == name
        for call in module.calls
        if module.qualified(call.func) in SPAWN
        for keyword in call.keywords
    )


def _worked_out(module: Module, counted: ast.Assign, spawned: Spawned) -> ast.stmt | None:
    """What the starting function computes from a number of GPUs, be it a rate or a size, for what stays to read."""
    starting = module.scope(counted)
    gone = set(module.walk(spawned.call)) | (set(module.walk(spawned.choice.test)) if spawned.choice else set())
    gone |= {n for c in module.calls if module.full_name(c.func).endswith(_JOIN) for n in module.walk(c)}
    gone -= {n for argument in spawned.arguments for n in module.walk(argument)}
    for node in _reads(module, counted.targets[0], gone):
        statement = module.statement(node)
        if module.scope(node) is starting and isinstance(statement, ast.Assign | ast.AugAssign):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            own = set(module.walk(statement))
            if isinstance(statement, ast.AugAssign) or next(_reads(module, target, gone | own), None):
                return statement
    return None


def _reads(module: Module, target: ast.expr, gone: set[ast.AST]) -> Iterator[ast.expr]:
    """Where a variable is read, or an attribute of its name; what is only shown is left out."""
    variable, attribute = module.variable(target), getattr(target, "attr", None)
    for node in module.walk(module.tree, ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load) and node not in gone:
            same = module.variable(node) == variable or (
                attribute is not None and getattr(node, "attr", "") == attribute
            )
            if same and not _is_shown(module, node):
                yield node


def _is_shown(module: Module, node: ast.expr) -> bool:
    """`print(count)`, `logger.info(count)`."""
    statement = module.statement(node)
    shown = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    name = shown.attr if isinstance(shown, ast.Attribute) else getattr(shown, "id", "")
    return name in ("print", "info", "debug", "warning")


def _only_for(module: Module, statement: ast.Assign, spawned: Spawned) -> bool:
    """Whether nothing but the start of the processes reads what a statement sets."""
    target = statement.targets[0]
    variable = module.variable(target)
    inside = set(module.walk(spawned.call))
    attribute = target.attr if isinstance(target, ast.Attribute) else None
    for node in module.walk(module.tree, ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load) and node not in inside:
            if module.variable(node) == variable or getattr(node, "attr", "") == attribute:
                return False
    return True
