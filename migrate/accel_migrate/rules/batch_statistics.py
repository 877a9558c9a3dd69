"""AM804: batch normalisation takes its statistics from the batch of each process."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.notes.batch_norm import batch_norm, by_hand, is_settled
from accel_migrate.edits import note
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM804"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    found = by_hand(context.script, training)
    if found is not None and module is training.place.module:
        owner, node = found
        line = f"{owner.source.path.name}:" if owner is not module else "line "
        yield note(context, CODE, training.place.after, _BY_HAND.format(line=f"{line}{getattr(node, 'lineno', 0)}"))
    if is_settled(context.script, training):
        return
    for layer in batch_norm(context.script, training):
        chosen = "if the model that is chosen has it" if layer.chosen else ""
        if layer.module is module:
            message = _message(f" ({chosen})" if chosen else "")
            yield note(context, CODE, layer.node, message)
        elif layer.module not in training.modules and training.place.module is module:
            line = f"{layer.module.source.path.name}:{getattr(layer.node, 'lineno', 0)}"
            message = _message(f" ({line}{', ' if chosen else ''}{chosen})")
            yield note(context, CODE, training.place.after, message)


_BY_HAND = (
    "each process takes the mean over the rows of its own batch from them ({line}); for that of all processes put "
    "torch.nn.SyncBatchNorm in its place"
)


def _message(where: str) -> str:
    return (
        f"each process normalises by the statistics of its own batch{where}; for those of all processes convert the model with "
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm before prepare"
    )


RULE = Rule(
    code=CODE,
    summary="batch normalisation on several processes",
    why="The batch of one process is as large as it was, so its statistics are as good as they were; those of all processes "
    "together would be better, at the price of an exchange in every layer.",
    example_before="self.bn = nn.BatchNorm2d(64)",
    find=find,
    safety=Safety.NOTE,
)
