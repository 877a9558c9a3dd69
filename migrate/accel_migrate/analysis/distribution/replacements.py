"""Hand-written distribution, taken apart: each replacement with what takes its place."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accel_migrate.flow.nodes import arguments_at, is_none, unparse, walk
from accel_migrate.flow.scopes import Function, Module, Variable

if TYPE_CHECKING:
    from accel_migrate.analysis.distribution.workers import Worker

ACCELERATOR = "{accelerator}"  # stands for the Accelerator in the text of a replacement

# Of DistributedDataParallel, which DistributedDataParallelKwargs has as well.
SETTINGS = {
    "find_unused_parameters", "broadcast_buffers", "bucket_cap_mb", "gradient_as_bucket_view", "static_graph",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Replacement:
    """`node` gives way to `text`, in which the Accelerator is spelled as its place needs; None: the statement goes."""

    code: str  # of the rule that speaks of it
    module: Module
    node: ast.expr | ast.stmt
    text: str | None
    message: str
    optional: bool = False  # done where the Accelerator is in reach, and left where it is not

    @property
    def needs_accelerator(self) -> bool:
        return self.text is not None and ACCELERATOR in self.text and not self.optional

    @property
    def statement(self) -> ast.stmt:
        return self.module.statement(self.node)


@dataclass(frozen=True, eq=False)
class Wrapping:
    """`DistributedDataParallel(model, ...)` or `DataParallel(model, ...)`, of which the model is left."""

    module: Module
    call: ast.Call
    model: ast.expr
    is_data_parallel: bool

    @property
    def moves_inputs(self) -> bool:
        """Whether the wrapper takes what its model is called with to a GPU: DistributedDataParallel does where it is told one."""
        return self.is_data_parallel or any(not is_none(each) for each in arguments_at(self.call, 1, "device_ids"))

    @property
    def settings(self) -> dict[str, ast.expr]:
        return {k.arg: k.value for k in self.call.keywords if k.arg in SETTINGS}

    @property
    def in_place(self) -> bool:
        """`model.features = DataParallel(model.features)`, with which nothing else goes but a part of the names of weights."""
        statement = self.module.parents[self.call]
        return isinstance(statement, ast.Assign) and [unparse(t) for t in statement.targets] == [unparse(self.model)]


@dataclass(frozen=True, eq=False)
class Shared:
    """A loader that was sharded by a DistributedSampler: the sampler's argument goes, `shuffle` says how it drew."""

    module: Module
    call: ast.Call
    sampler: ast.keyword
    shuffle: ast.keyword | None  # what the loader said itself
    value: str | None  # the new `shuffle`; None: in order


@dataclass(frozen=True, eq=False)
class Spawned:
    """`mp.spawn(function, args=(...))`; `lost` are the parameters that told the process who it is."""

    module: Module
    call: ast.Call
    function: Function
    arguments: tuple[ast.expr, ...]  # those that are still handed over
    lost: tuple[tuple[str, str], ...]  # parameter, and what it becomes inside
    counted: ast.Assign | None = None  # `args.nprocs = torch.cuda.device_count()`, which the function reads
    choice: ast.If | None = None  # `if many: mp.spawn(function, ...) else: function(0, 1, ...)`
    number: str = "num_processes"  # what the number of GPUs becomes inside


@dataclass(frozen=True, eq=False)
class Distribution:
    """All of it. Empty for a script that knows nothing of other processes."""

    replacements: tuple[Replacement, ...] = ()
    wrappings: tuple[Wrapping, ...] = ()
    shared: tuple[Shared, ...] = ()
    spawned: Spawned | None = None
    worker: Worker | None = None
    timeout: tuple[Module, ast.expr] | None = None  # of init_process_group
    epochs: tuple[tuple[Module, ast.Call], ...] = ()  # set_epoch() of samplers that stay
    ranks: frozenset[Variable] = frozenset()
    joins: bool = False  # the script ran on several processes before, each with batches of its own
    main_only: frozenset[ast.If | ast.IfExp] = field(
        default_factory=frozenset
    )  # bodies that only the main process runs

    def __bool__(self) -> bool:
        return bool(self.replacements or self.wrappings or self.shared or self.spawned)

    @property
    def wrapped(self) -> frozenset[Variable]:
        """What is set to a wrapper, also of a model that nothing trains."""
        found = [(w.module, w.module.parents[w.call]) for w in self.wrappings]
        targets = [(m, target) for m, s in found if isinstance(s, ast.Assign) for target in s.targets]
        return frozenset(variable for m, target in targets if (variable := m.variable(target)) is not None)

    @property
    def barriers(self) -> set[ast.stmt]:
        """Where all processes wait for each other already."""
        return {each.statement for each in self.replacements if each.text == f"{ACCELERATOR}.wait_for_everyone()"}

    def modules(self) -> list[Module]:
        found = [p.module for p in self.replacements if not p.optional] + [w.module for w in self.wrappings]
        found += [s.module for s in self.shared] + ([self.spawned.module] if self.spawned else [])
        return list(dict.fromkeys(found))

    @property
    def unwrapped(self) -> frozenset[ast.AST]:
        """Models that the author took out of their wrapper."""
        return frozenset(replacement.node for replacement in self.replacements if _takes_out(replacement.node))

    def rewritten(self) -> set[ast.AST]:
        """Statements that change, or go with what they stand in."""
        inside = (part for p in self.replacements if isinstance(p.node, ast.stmt) for part in p.module.walk(p.node))
        return {replacement.statement for replacement in self.replacements} | set(inside)

    def gone(self) -> list[ast.AST]:
        """Nodes that are no longer there afterwards."""
        nodes: list[ast.AST] = [replacement.node for replacement in self.replacements if not replacement.optional]
        for wrapping in self.wrappings:
            nodes.append(wrapping.call.func)
            nodes += [*wrapping.call.args[1:], *wrapping.call.keywords]
        if self.spawned is not None:
            kept = {part for argument in self.spawned.arguments for part in walk(argument)}
            whole = self.spawned.choice or self.spawned.call
            nodes += [part for part in walk(whole) if isinstance(part, ast.Name) and part not in kept]
        for shared in self.shared:
            nodes += [shared.sampler, *([shared.shuffle] if shared.shuffle is not None else [])]
        return nodes

    def runs_on_main_only(self, module: Module, node: ast.AST) -> bool:
        """Whether a node stands in the body of a main-process guard, or in that branch of a choice."""
        return any(holds and choice in self.main_only for choice, holds in module.branches(node, beyond=True))


def _takes_out(node: ast.AST) -> bool:
    """`model.module`, `model.module if ddp else model`"""
    if isinstance(node, ast.IfExp):
        return _takes_out(node.body) or _takes_out(node.orelse)
    return isinstance(node, ast.Attribute) and node.attr == "module"
