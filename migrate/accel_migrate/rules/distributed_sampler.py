"""AM703: a prepared loader shards its batches, so DistributedSamplers go."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Shared
from accel_migrate.edits import change, piece_changes
from accel_migrate.items import without_item, without_items
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM703"


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
    yield from piece_changes(context, CODE)


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
    "seed instead of the sampler's own. `set_epoch` goes: a prepared loader reshuffles in each epoch.",
    example_before="loader = DataLoader(data, sampler=DistributedSampler(data))",
    example_after="loader = DataLoader(data, shuffle=True)",
    find=find,
)
