"""AM804: batch normalisation takes its statistics from the batch of each process."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM804"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    synced = any("SyncBatchNorm" in (m.qualified(c.func) or "") for m in training.modules for c in m.calls)
    for call in module.calls:
        if (module.qualified(call.func) or "").startswith("torch.nn.BatchNorm") and not synced:
            message = (
                "each process normalises by the statistics of its own batch; for those of all processes convert the model "
                "with torch.nn.SyncBatchNorm.convert_sync_batchnorm before prepare"
            )
            yield change(CODE, call, message, loop=training.index, safety=Safety.NOTE)
            return


RULE = Rule(
    code=CODE,
    name="batch_statistics",
    summary="batch normalisation on several processes",
    why="The batch of one process is as large as it was, so its statistics are as good as they were; those of all processes "
    "together would be better, at the price of an exchange in every layer.",
    example_before="self.bn = nn.BatchNorm2d(64)",
    example_after="self.bn = nn.BatchNorm2d(64)",
    find=find,
    safety=Safety.NOTE,
)
