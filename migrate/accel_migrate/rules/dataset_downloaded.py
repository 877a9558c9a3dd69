"""AM604: data that every process downloads at once."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.files import downloads
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM604"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    for call in module.calls:
        if downloads(module, call) and not training.flow.on_some(module, call):
            message = (
                "every process looks for the data and downloads what is missing, into one folder; have it there before the "
                "first run on several processes, for instance by a run on one"
            )
            yield change(CODE, call, message, loop=training.index, safety=Safety.NOTE)
            return


RULE = Rule(
    code=CODE,
    name="dataset_downloaded",
    summary="data that every process downloads",
    why="Processes that unpack the same archive into the same folder at once read each other's half-written files.",
    example_before='data = MNIST("data", download=True)',
    example_after='data = MNIST("data", download=True)',
    find=find,
    safety=Safety.NOTE,
)
