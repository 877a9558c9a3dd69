"""Hand-written distribution of one training, understood whole or not at all.

Whatever of torch.distributed is not understood raises NotMigrated, unless it only runs where processes were joined: the
Accelerator joins them in torch's own default group, so that such a call goes on working.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.collectives import ADDING_UP, collective, is_divided, is_evaluated
from accel_migrate.analysis.distribution.one_or_many import refusals_alone, runs_on_several, silenced_prints
from accel_migrate.analysis.distribution.ranks import CODE as RANK
from accel_migrate.analysis.distribution.ranks import Ranks, is_guarded
from accel_migrate.analysis.distribution.replacements import (
    ACCELERATOR,
    SETTINGS,
    Distribution,
    Replacement,
    Spawned,
    Wrapping,
)
from accel_migrate.analysis.distribution.samplers import CODE as SAMPLER
from accel_migrate.analysis.distribution.samplers import epochs_told, find_samplers
from accel_migrate.analysis.distribution.spawning import find_spawned, world_counts
from accel_migrate.analysis.distribution.unwrapping import check_wrappings
from accel_migrate.analysis.distribution.workers import SPAWN, find_worker
from accel_migrate.analysis.evaluation.evaluation import Evaluation, Whole
from accel_migrate.analysis.moves.devices import SETTERS
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.origins import Where, where
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.effects import only_reads
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.flow.torch_api import is_parallel

GROUP = "AM701"
_JOINING = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NCCL_SOCKET_IFNAME")
_STARTS = "starts processes by itself; call the function that it is handed in its place, and start with `accel launch`"
_READS = {
    "get_rank", "get_world_size", "is_initialized", "is_available", "is_nccl_available", "is_torchelastic_launched",
    "get_default_backend_for_device",
}  # fmt: skip


def find_distribution(
    graph: CallGraph, modules: list[Module], evaluations: list[Evaluation], for_accelerate: bool = False
) -> Distribution:
    """The replacements in the files of a training, and in those whose functions initialise the process group for it."""
    modules = [*modules, *_joining(graph, modules)]
    if not any(_speaks_of_processes(module) for module in modules):
        return Distribution()
    ranks = Ranks(graph.roles, modules, for_accelerate)
    by_hand = [e.by_hand for e in evaluations if isinstance(e, Whole) and e.by_hand is not None]
    staying = frozenset(call for one in by_hand for call in (*one.samplers, *one.collectives))
    worker = find_worker(graph, modules)
    spawned = find_spawned(graph, modules, ranks) if worker is None else None
    if worker is not None:
        ranks.held |= dict.fromkeys(worker.gpus, "local_process_index")
    replacements: list[Replacement] = [*worker.replacements()] if worker is not None else []
    wrappings: list[Wrapping] = []
    shared = []
    main_only: set[ast.If | ast.IfExp] = set()
    for module in modules:
        sampling, loaders = find_samplers(module, staying)
        replacements += sampling
        shared += loaders
        wrappings += _wrappings(module)
        replacements += _told_ranks(ranks, module, spawned, worker is not None)
        replacements += ranks.replacements(module)
        replacements += _group_pieces(ranks, module, spawned is not None or worker is not None, staying, evaluations)
        main_only |= ranks.main_only(module)
    replaced = [replacement for replacement in replacements if replacement.code == SAMPLER]
    told = {module: epochs_told(graph, module, shared, replaced) for module in modules}
    replacements += [replacement for going, _ in told.values() for replacement in going]
    check_wrappings(graph.roles, wrappings)
    replacements += list(_alike(replacements))
    joins = any(replacement.code == GROUP for replacement in replacements)
    if joins:
        replacements += [replacement for module in modules for replacement in silenced_prints(module, GROUP)]
    if worker is not None:
        replacements += refusals_alone(worker.module, worker.function, worker.flag, GROUP)
    if joins and worker is None and spawned is not None:
        replacements += [replacement for module in modules for replacement in world_counts(module, spawned)]
    dropped = {n for w in wrappings for part in (*w.call.args[1:], *w.call.keywords) for n in w.module.walk(part)}
    replacements = _without_empty_functions(graph, [p for p in _outermost(replacements) if p.node not in dropped])
    _check_helpers(graph, ranks, evaluations, staying)
    return Distribution(
        tuple(replacements),
        tuple(wrappings),
        tuple(shared),
        spawned,
        worker,
        timeout=_timeout(modules),
        epochs=tuple((module, call) for module, (_, staying) in told.items() for call in staying),
        ranks=frozenset(ranks.held),
        joins=any(not wrapping.is_data_parallel for wrapping in wrappings) and runs_on_several(modules),
        main_only=frozenset(main_only),
    )


def _speaks_of_processes(module: Module) -> bool:
    data = module.source.data
    return b"distributed" in data or b"DataParallel" in data or b"RANK" in data or b"set_device" in data


def _group_pieces(
    ranks: Ranks, module: Module, starts_itself: bool, staying: frozenset[ast.Call], evaluations: list[Evaluation]
) -> Iterator[Replacement]:
    for call in module.calls:
        if call in staying:
            continue
        dotted = module.full_name(call.func)
        statement = module.statement(call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        if dotted in SETTERS and alone:
            yield Replacement(GROUP, module, statement, None, "the Accelerator sets the device of its process")
        elif dotted in ("os.environ.setdefault", "os.putenv") and alone and _names_joining(call.args[:1]):
            yield Replacement(GROUP, module, statement, None, "the launcher says where the processes meet")
        if not dotted.startswith("torch.distributed."):
            continue
        name = dotted.rpartition(".")[2]
        if name == "init_process_group":
            _check_rank(ranks, module, call, starts_itself)
            if not alone:
                raise NotMigrated("what init_process_group returns is used", (module, call))
            yield Replacement(GROUP, module, statement, None, "the Accelerator initialises the process group")
        elif name == "destroy_process_group" and alone:
            yield Replacement(
                GROUP, module, call, f"{ACCELERATOR}.end_training()", "the Accelerator destroys the process group"
            )
        elif name in _READS or (is_guarded(module, call) and not is_evaluated(module, call, evaluations)):
            continue
        elif name[:1].islower():
            yield from collective(ranks, module, call, name, evaluations)
    for node in module.walk(module.tree, ast.Assign):
        if isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if module.qualified(target.value) == "os.environ" and _names_joining([target.slice]):
                yield Replacement(GROUP, module, node, None, "the launcher says where the processes meet")
        if _is_gpu_of_rank(ranks, module, node):
            is_text = not isinstance(node.value, ast.Call) or module.qualified(node.value.func) != "torch.device"
            text = f"str({ACCELERATOR}.device)" if is_text else f"{ACCELERATOR}.device"
            yield Replacement(GROUP, module, node.value, text, "the Accelerator chooses the device")


def _alike(replacements: list[Replacement]) -> Iterator[Replacement]:
    """`if many: ... device = ... else: device = ...`, where nothing is left but the Accelerator's device in each branch."""
    by_node = {replacement.node: replacement for replacement in replacements}
    for replacement in replacements:
        module, whole = replacement.module, replacement.module.parents[replacement.statement]
        if not isinstance(replacement.statement, ast.Assign) or replacement.node is not replacement.statement.value:
            continue
        if not isinstance(whole, ast.If) or not whole.orelse or not only_reads(whole.test) or replacement.code != GROUP:
            continue
        left = [s for s in (*whole.body, *whole.orelse) if s not in by_node]
        target = unparse(replacement.statement.targets[0])
        same = [
            isinstance(s, ast.Assign)
            and unparse(s.targets[0]) == target
            and s.value in by_node
            and by_node[s.value].text == replacement.text
            for s in left
        ]
        one_each = len(left) == 2 and left[0] in whole.body and left[1] in whole.orelse
        if all(same) and one_each and replacement.text is not None:
            text = f"{target} = {replacement.text}"
            yield Replacement(GROUP, module, whole, text, "the Accelerator chooses the device")


def _names_joining(names: list[ast.expr]) -> bool:
    return bool(names) and isinstance(names[0], ast.Constant) and names[0].value in _JOINING


def _is_gpu_of_rank(ranks: Ranks, module: Module, statement: ast.Assign) -> bool:
    """`device = f"cuda:{local_rank}"` or `torch.device("cuda", local_rank)` beside another value of the same variable."""
    value = statement.value
    variable = module.variable(statement.targets[0])
    if variable is None or len(module.bindings(variable)) < 2:
        return False
    if isinstance(value, ast.JoinedStr):
        return unparse(value)[2:].startswith("cuda:")
    made = isinstance(value, ast.Call) and module.qualified(value.func) == "torch.device"
    asked = [n for n in module.walk(value, ast.Name, ast.Attribute) if ranks.attribute(module, n)]
    return made and bool(asked) and bool(where(ranks.roles, module, value) & Where.NUMBERED)


def _check_rank(ranks: Ranks, module: Module, call: ast.Call, starts_itself: bool) -> None:
    """The rank and size that are handed in must be the launcher's, or those of mp.spawn."""
    for keyword in call.keywords:
        if keyword.arg in ("rank", "world_size") and not isinstance(keyword.value, ast.Constant):
            text = unparse(keyword.value)
            known = ranks.attribute(module, keyword.value) is not None or any(
                isinstance(n, ast.Constant) and n.value in ("RANK", "WORLD_SIZE") for n in walk(keyword.value)
            )
            if not known and not starts_itself:
                raise NotMigrated(
                    f"init_process_group() gets `{keyword.arg}={text}`, which the script works out by itself; let it "
                    "read the environment (init_method='env://') first",
                    (module, call),
                )


def _told_ranks(ranks: Ranks, module: Module, spawned: Spawned | None, ranks_kept: bool) -> Iterator[Replacement]:
    """`args.rank = args.node * gpus + gpu`, which init_process_group is told: the Accelerator knows it.

    With `ranks_kept` the function goes on with variables of its own.
    """
    if spawned is None or spawned.module is not module:
        return
    lost = {name for name, _ in spawned.lost}
    for call in module.calls:
        if module.full_name(call.func) != "torch.distributed.init_process_group":
            continue
        for keyword in call.keywords:
            attribute = {"rank": "process_index", "world_size": "num_processes"}.get(keyword.arg or "")
            variable = module.variable(keyword.value)
            if attribute is None or variable is None:
                continue
            for binding in module.bindings(variable):
                if binding.value is None or module.scope(binding.statement).function is not spawned.function:
                    continue
                if lost & {node.id for node in walk(binding.value) if isinstance(node, ast.Name)}:
                    ranks.held[variable] = attribute
                    yield Replacement(RANK, module, binding.value, f"{ACCELERATOR}.{attribute}", "asks the Accelerator")
            own = any(module.scope(b.statement).function is spawned.function for b in module.bindings(variable))
            if attribute == "num_processes" and isinstance(keyword.value, ast.Attribute) and not own and not ranks_kept:
                yield from _worlds_read(module, keyword.value, spawned)


def _worlds_read(module: Module, told: ast.Attribute, spawned: Spawned) -> Iterator[Replacement]:
    """`args.lr * args.world_size`, of a size that was worked out before the processes were started."""
    for node in module.walk(module.tree, ast.Attribute):
        if node.attr != told.attr or unparse(node) != unparse(told) or not isinstance(node.ctx, ast.Load):
            continue
        function = module.scope(node).function
        if function is spawned.function:
            yield Replacement(RANK, module, node, f"{ACCELERATOR}.num_processes", "asks the Accelerator")
        elif function is not None and function is not module.scope(spawned.call).function:
            raise NotMigrated(
                f"`{unparse(told)}` is worked out before the processes are started, and {getattr(function, 'name', '')}() reads "
                "it; hand it over, or let it read the environment",
                (module, node),
            )


def _wrappings(module: Module) -> Iterator[Wrapping]:
    for call in module.calls:
        dotted = module.full_name(call.func)
        name = dotted.rpartition(".")[2]
        if is_parallel(dotted) and call.args:
            for keyword in call.keywords:
                allowed = {"device_ids", "output_device", "dim", *SETTINGS}
                if keyword.arg is None:
                    what = f"the settings of {name}() in `{unparse(keyword.value)}` are not visible to the analysis"
                    raise NotMigrated(f"{what}; write them out in the call", (module, call))
                if keyword.arg not in allowed:
                    raise NotMigrated(f"{name}({keyword.arg}=...) has no counterpart", (module, call))
            yield Wrapping(module, call, call.args[0], name == "DataParallel")


def _timeout(modules: list[Module]) -> tuple[Module, ast.expr] | None:
    """How long collectives may wait, where the script says so."""
    joins = [(m, c) for m in modules for c in m.calls if m.qualified(c.func) == "torch.distributed.init_process_group"]
    return next(((m, k.value) for m, call in joins for k in call.keywords if k.arg == "timeout"), None)


def _outermost(replacements: list[Replacement]) -> list[Replacement]:
    """Without replacements inside others, and each node once."""
    by_node: dict[ast.AST, Replacement] = {}
    for replacement in replacements:
        if replacement.node not in by_node or by_node[replacement.node].optional:
            by_node[replacement.node] = replacement
    return [
        replacement
        for node, replacement in by_node.items()
        if not any(p in by_node for p in replacement.module.ancestors(node))
    ]


def _without_empty_functions(graph: CallGraph, replacements: list[Replacement]) -> list[Replacement]:
    """`setup()` and `cleanup()` that only joined and parted the processes go, and so do their calls."""
    removed = {replacement.node for replacement in replacements if replacement.text is None}
    turned = {
        replacement.statement: replacement
        for replacement in replacements
        if replacement.text is not None and replacement.code == GROUP
    }
    result = list(replacements)
    for function, sites in graph.sites.items():
        body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        alone = [(m, c) for m, c in sites if isinstance(m.parents[c], ast.Expr)]
        owner = next(
            (
                replacement.module
                for replacement in replacements
                if replacement.node in body or replacement.statement in body
            ),
            None,
        )
        if not body or owner is None or len(alone) != len(sites):
            continue
        single = turned.get(body[0]) if len(body) == 1 else None
        if single is None and not all(_vanishes(owner, s, replacements, removed) for s in body):
            continue
        inside = set(owner.walk(function))
        result = [replacement for replacement in result if replacement.node not in inside]
        result.append(Replacement(GROUP, owner, function, None, f"{function.name}() has nothing left to do"))
        for module, call in alone:
            text, message = (
                (single.text, single.message)
                if single is not None
                else (None, "the Accelerator initialises the process group")
            )
            node: ast.expr | ast.stmt = call if text is not None else module.statement(call)
            result.append(Replacement(GROUP, module, node, text, message))
    return result


def _vanishes(
    module: Module, statement: ast.stmt, replacements: list[Replacement], removed: set[ast.expr | ast.stmt]
) -> bool:
    """Whether nothing is left of a statement: it goes, all it holds goes, or it only set a rank for those that go."""
    if statement in removed:
        return True
    if isinstance(statement, ast.If) and only_reads(statement.test):
        return all(_vanishes(module, inner, replacements, removed) for inner in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Assign) and any(p.statement is statement for p in replacements):
        return _is_local(statement)
    return isinstance(statement, ast.Pass)


def _is_local(statement: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) for target in statement.targets)


def _joining(graph: CallGraph, modules: list[Module]) -> Iterator[Module]:
    """Other files with a helper that initialises the process group; NotMigrated for one that starts processes by itself."""
    for module in graph.roles.project.modules:
        if module in modules or b"torch" not in module.source.data:
            continue
        joins = False
        for call in module.calls:
            dotted, function = module.full_name(call.func), module.scope(call).function
            deed = dotted in SPAWN or dotted == "torch.distributed.init_process_group"
            sites = graph.sites.get(function, ()) if deed and function is not None else ()
            used = [site for site in sites if site[0] in modules]
            joins = joins or bool(used)
            if used and dotted in SPAWN:
                name = f"{getattr(function, 'name', 'it')}() of {module.source.path.name}"
                raise NotMigrated(f"{name} {_STARTS}", used[0])
        if joins:
            yield module


def _check_helpers(graph: CallGraph, ranks: Ranks, evaluations: list[Evaluation], staying: frozenset[ast.Call]) -> None:
    """An evaluation that adds up over processes in a function of its own would count every sample N times."""
    reached: set[Function] = set()
    for evaluation in evaluations:
        loop = evaluation.loop
        reached |= graph.reached_from(loop.function or loop.statement, loop.module)
    for module, call in graph.roles.project.calls:
        if call in staying or module.qualified(call.func) not in ADDING_UP or not call.args:
            continue
        function = module.scope(call).function
        if function in reached and not is_divided(ranks, module, module.statement(call), call.args[0]):
            raise NotMigrated(
                f"an evaluation adds up over processes in {function.name}(), where the Accelerator has all samples "
                "already; take that out of the evaluation first",
                (module, call),
            )
