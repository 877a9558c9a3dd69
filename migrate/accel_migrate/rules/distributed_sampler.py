"""AM703: a prepared loader shards its batches, so DistributedSamplers go."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Shared
from accel_migrate.analysis.distribution.samplers import is_told
from accel_migrate.analysis.values.constructions import built_calls
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change, note, piece_changes
from accel_migrate.items import without_item, without_items
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM703"
_ONE_ORDER = (
    "nothing tells this sampler the epoch (set_epoch), so it repeated one order in every epoch, and each process had the same "
    "samples again; the prepared loader draws a new order, and new shards, in each epoch"
)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for shared in training.distribution.shared:
        if shared.module is module:
            drawn = (
                "the order of shuffling is not the sampler's"
                if shared.value is not None
                else "in order, as the sampler did"
            )
            message = f"the prepared loader shards its batches; {drawn}"
            yield change(context, CODE, shared.call, message, _edits(context, shared))
            if shared.value is not None and _is_repeated(context, shared) and not is_told(context.script.graph, shared):
                yield note(context, CODE, shared.sampler.value, _ONE_ORDER)
    yield from piece_changes(context, CODE)


def _is_repeated(context: Context, shared: Shared) -> bool:
    """Whether a loader is trained on in more than one epoch, as far as loops around its own show."""
    graph = context.script.graph
    for loop in context.training.loops:
        built = built_calls(graph, loop.module.variable(loop.loader), Role.LOADER) if loop.trains else ()
        if any(made is shared.call for _, made in built):
            function = loop.module.scope(loop.statement).function
            runs = [(loop.module, loop.statement), *(graph.all_sites.get(function, ()) if function is not None else ())]
            return any(isinstance(a, ast.For | ast.While) for module, node in runs for a in module.ancestors(node))
    return False


def _edits(context: Context, shared: Shared) -> list[Edit]:
    source = context.module.source
    sampler, shuffle = shared.sampler, shared.shuffle
    new = f"shuffle={shared.value}"
    if shuffle is None:
        if shared.value is None:
            return [without_item(source, sampler)]
        return [Replace(source.start(sampler), source.end(sampler), new)]
    if shared.value is None and source.code(shuffle.value) != "False":
        return without_items(source, [(sampler, sampler), (shuffle, shuffle)])
    if shared.value is None:
        return [without_item(source, sampler)]
    return [without_item(source, sampler), Replace(source.start(shuffle), source.end(shuffle), new)]


RULE = Rule(
    code=CODE,
    summary="DistributedSampler becomes `shuffle=`",
    why="A loader that keeps its DistributedSampler and is prepared is sharded twice: on two processes half of the data is "
    "never seen. `shuffle=` follows what the sampler did (it shuffles unless `shuffle=False`); the order is drawn from torch's "
    "seed instead of the sampler's own. `set_epoch` goes: a prepared loader reshuffles in each epoch. "
    "A note says so of a sampler that nothing told the epoch: it repeated one order.",
    example_before="loader = DataLoader(data, sampler=DistributedSampler(data))",
    example_after="loader = DataLoader(data, shuffle=True)",
    find=find,
)
