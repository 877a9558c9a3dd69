"""AM807: loaders whose batches are not sharded, or are chosen by the author's own sampler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.drawn import is_stream
from accel_migrate.analysis.values.constructions import constructions, is_foreign_loader, is_torchs_sampler
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import note
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.reaching import reaching
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM807"
_OWN = {"sampler", "batch_sampler"}


def find(context: Context) -> Iterator[Change]:
    training, module, roles = context.training, context.module, context.script.roles
    shared = {each.call for each in training.distribution.shared}  # their samplers go
    for built in training.prepared:
        if built.role == Role.LOADER:
            for owner, call in constructions(roles, built.variable, Role.LOADER):
                message = _message(context, call) if owner is module and call not in shared else ""
                if message:
                    yield note(context, CODE, call, message)
    for loop in training.loops:
        variable = loop.module.variable(loop.loader)
        if loop.module is module and loop.trains and variable is not None:
            if is_foreign_loader(context.script.graph, variable):
                message = (
                    "this loader is not sharded: its library makes batches and samples of its own kind, so every process "
                    "trains on all of the data; give it each process's part, by accelerator.process_index"
                )
                yield note(context, CODE, loop.statement, message)


def _message(context: Context, call: ast.Call) -> str:
    if call.args and is_stream(context.script.roles, context.module, call.args[0]):
        return (
            "the data is a stream: every process reads all of it and keeps its turn of the batches, so it must give the same "
            "samples in the same order on all; seed it alike, and leave the sharing out to `prepare`"
        )
    own = next((k for k in call.keywords if k.arg in _OWN and not _is_known(context, k.value)), None)
    if own is not None:
        return (
            f"the {own.arg} is the author's own: every process draws from it and takes its turn of the batches, which is right "
            "only if all draw the same order; seed it alike on all processes"
        )
    return ""


def _is_known(context: Context, node: ast.expr) -> bool:
    """`None`, a DistributedSampler, which goes, or what the runtime knows: torch's own, and what has `num_replicas`."""
    module = context.module
    if isinstance(node, ast.Constant) or bool(context.script.roles.role(module, node) & Role.SAMPLER):
        return True
    made = [binding.value for binding in reaching(module, node)] if isinstance(node, ast.Name) else [node]
    known = bool(made) and all(isinstance(one, ast.Call) and _is_read(context, one) for one in made)
    return known and context.settings.target != "accelerate"


def _is_read(context: Context, call: ast.Call) -> bool:
    """Whether the runtime draws from a sampler as process 0 does, or does not shard its batches again."""
    own = context.script.roles.made(context.module, call)
    return is_torchs_sampler(context.module, call) or (own is not None and "num_replicas" in unparse(own.node))


RULE = Rule(
    code=CODE,
    summary="loaders with samplers or batches of their own kind",
    why="`prepare` shards what torch's DataLoader yields, in an order that all processes agree on. A sampler with its own "
    "random numbers, or a library's own loader, may not keep to that.",
    example_before="loader = DataLoader(data, sampler=WeightedSampler(weights))",
    find=find,
    safety=Safety.NOTE,
)
