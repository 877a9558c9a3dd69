"""A worker that the script spawns for each GPU or calls once, as an option says: of the choice the call is left.

The worker goes on with its own variables (`args.rank`, `ngpus_per_node`, `args.distributed`, ...), and the Accelerator
tells them what mp.spawn and the script's own arithmetic told them before. So what is computed from them, such as a batch
size that is divided by the number of GPUs, stays the author's and stays right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.replacements import Replacement
from accel_migrate.analysis.moves.devices import SETTERS
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.flow.nodes import positional_parameters, unparse
from accel_migrate.flow.scopes import Function, Module, Variable
from accel_migrate.flow.sequence import comes_first

CODE = "AM706"
GROUP = "AM701"
SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_JOIN = "torch.distributed.init_process_group"


@dataclass(frozen=True, eq=False)
class Worker:
    """`if flag: mp.spawn(function, ...) else: function(...)`, where `function` joins the processes in `joining`."""

    module: Module
    choice: ast.If
    call: ast.Call  # the plain one
    function: Function
    joining: ast.If  # `if args.distributed:` around what joins
    rank: ast.expr  # as init_process_group is told
    world: ast.expr
    gpu: str  # the parameter that is the number of the GPU
    count: str | None  # the parameter that is the number of GPUs
    modules: tuple[Module, ...]  # of the project

    @property
    def flag(self) -> str:
        """What the script calls training on several processes: `args.distributed`."""
        return unparse(self.joining.test)

    def replacements(self) -> Iterator[Replacement]:
        start = self.module.source.code(self.module.statement(self.call))
        yield Replacement(
            CODE, self.module, self.choice, start, "`accel launch --num_processes N` starts the processes"
        )
        yield Replacement(GROUP, self.module, self.joining, None, "the Accelerator initialises the process group")
        caller = self.module.scope(self.choice).function
        for node in self.module.walk(caller or self.module.tree, ast.Assign):
            if self._is_told(node) and self.module.scope(node).function is caller:
                guard = self.module.parents[node]
                alone = (
                    isinstance(guard, ast.If) and guard is not self.choice and [*guard.body, *guard.orelse] == [node]
                )
                whole = guard if alone and isinstance(guard, ast.If) else node
                if not any(parent is self.choice for parent in self.module.ancestors(node)):
                    yield Replacement(CODE, self.module, whole, None, "the launcher says so")

    def _is_told(self, statement: ast.Assign) -> bool:
        told = {unparse(self.rank), unparse(self.world), self.flag}
        return len(statement.targets) == 1 and unparse(statement.targets[0]) in told

    def told(self, start: ast.stmt, gone: frozenset[ast.AST]) -> Iterator[str]:
        """What the worker's variables hold from where the Accelerator is made, on any number of processes."""
        copies = [s for s in self.copies if comes_first(self.module, s, start)]
        read = self._reads(gone | {statement.value for statement in copies})
        gpus = [name for s in copies if (name := unparse(s.targets[0])) in read]
        if self.gpu in read:
            gpus = [self.gpu, *gpus]
        if gpus:
            yield f"{' = '.join(gpus)} = accelerator.device.index"
        if self.count is not None and self.count in read:
            yield f"{self.count} = accelerator.local_num_processes"
        rank, world = unparse(self.rank), unparse(self.world)
        flags = [self.flag] if self.flag in read or unparse(self.choice.test) in read else []
        if rank in read and (world in read or flags):
            yield f"{rank}, {world} = accelerator.process_index, accelerator.num_processes"
        elif rank in read:
            yield f"{rank} = accelerator.process_index"
        elif world in read or flags:
            yield f"{world} = accelerator.num_processes"
        if flags:
            yield f"{self.flag} = {world} > 1"
        if isinstance(self.choice.test, ast.Attribute) and unparse(self.choice.test) in read:
            yield f"{unparse(self.choice.test)} = {self.flag}"

    @property
    def gpus(self) -> list[Variable]:
        """The variables that hold the number of the GPU."""
        held = [Variable(self.module.functions[self.function], self.gpu)]
        copied = [self.module.variable(statement.targets[0]) for statement in self.copies]
        return held + [variable for variable in copied if variable is not None]

    @property
    def copies(self) -> list[ast.Assign]:
        """`args.gpu = gpu`: what else holds the number of the GPU."""
        assigned = [statement for statement in self.function.body if isinstance(statement, ast.Assign)]
        return [s for s in assigned if isinstance(s.value, ast.Name) and s.value.id == self.gpu]

    def _reads(self, gone: frozenset[ast.AST]) -> set[str]:
        """What the worker, and whatever else takes its options, still reads, as the worker names it."""
        own = self.module.walk(self.function)
        read = {unparse(n) for n in own if isinstance(n, ast.Name | ast.Attribute) and _is_loaded(n, gone)}
        starting = self.module.scope(self.choice)
        # Options are handed on under other names, so an attribute counts wherever it is read.
        elsewhere = {
            node.attr
            for module in self.modules
            for node in module.walk(module.tree, ast.Attribute)
            if _is_loaded(node, gone)
            if module is not self.module or module.scope(node) is not starting  # which is over when the worker runs
        }
        told = [self.rank, self.world, self.joining.test, self.choice.test, *[s.targets[0] for s in self.copies]]
        return read | {unparse(t) for t in told if isinstance(t, ast.Attribute) and t.attr in elsewhere}


def _is_loaded(node: ast.Name | ast.Attribute, gone: frozenset[ast.AST]) -> bool:
    return isinstance(node.ctx, ast.Load) and node not in gone


def find_worker(graph: CallGraph, modules: list[Module]) -> Worker | None:
    """None where nothing is spawned, or the choice is another one."""
    spawned = [(m, call) for m in modules for call in m.calls if m.qualified(call.func) in SPAWN and call.args]
    if len(spawned) != 1:
        return None
    module, spawn = spawned[0]
    target = graph.roles.project.definition(module, spawn.args[0])
    function = target.node if target is not None else None
    sites = graph.sites.get(function, []) if isinstance(function, ast.FunctionDef) else []
    if not sites or not isinstance(function, ast.FunctionDef):
        return None
    choice = module.parents[module.statement(spawn)]
    said = dict(zip(("fn", "args", "nprocs", "join"), spawn.args)) | {k.arg: k.value for k in spawn.keywords}
    handed, count = said.get("args"), said.get("nprocs")
    if len(sites) != 1 or sites[0][0] is not module or not isinstance(choice, ast.If) or count is None:
        return None
    call = sites[0][1]
    if not isinstance(handed, ast.Tuple) or choice.orelse != [module.statement(call)] or call.keywords:
        return None
    parameters = [a.arg for a in positional_parameters(function)]
    same = [unparse(a) for a in call.args[1:]] == [unparse(a) for a in handed.elts]
    # Beside the spawning only numbers are set: `args.world_size = ngpus_per_node * args.world_size`.
    counts = all(isinstance(each, ast.Assign) for each in choice.body[:-1]) and isinstance(choice.body[-1], ast.Expr)
    if not same or len(parameters) != len(call.args) or not counts:
        return None
    joining = _joining(module, function)
    if joining is None:
        return None
    join, told = joining
    counting = [p for p, a in zip(parameters[1:], handed.elts) if unparse(a) == unparse(count)]
    count_name = counting[0] if counting else None
    everywhere = tuple(graph.roles.project.modules)
    return Worker(module, choice, call, function, join, told[0], told[1], parameters[0], count_name, everywhere)


def _joining(module: Module, function: Function) -> tuple[ast.If, tuple[ast.expr, ast.expr]] | None:
    """The `if` of the worker that joins the processes and does nothing else, with the rank and the size it is told."""
    for statement in function.body:
        if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Name | ast.Attribute):
            continue
        for call in (node for node in module.walk(statement, ast.Call)):
            if module.qualified(call.func) == _JOIN:
                said = {keyword.arg: keyword.value for keyword in call.keywords}
                rank, world = said.get("rank"), said.get("world_size")
                if not isinstance(rank, ast.Name | ast.Attribute) or not isinstance(world, ast.Name | ast.Attribute):
                    return None
                told = {unparse(rank), unparse(world)}
                return (statement, (rank, world)) if _only_joins(module, statement, told) else None
    return None


def _only_joins(module: Module, statement: ast.stmt, told: set[str]) -> bool:
    if isinstance(statement, ast.If):
        return all(_only_joins(module, inner, told) for inner in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Assign):
        return all(unparse(target) in told for target in statement.targets)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        dotted = module.full_name(statement.value.func)
        return dotted in (_JOIN, "torch.distributed.barrier", *SETTERS)
    return isinstance(statement, ast.Pass)
