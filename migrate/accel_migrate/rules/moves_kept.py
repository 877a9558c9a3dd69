"""AM206: the moves of a training stay, because something would part from what it meets without them."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import note
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM206"


def find(context: Context) -> Iterator[Change]:
    training = context.training
    first = training.spared[0] if training.staying and training.spared else None
    if first is not None and first.module is context.module:
        message = f"the moves to the device stay, and go to the Accelerator's: without them {training.staying}"
        yield note(context, CODE, first.call, message)


RULE = Rule(
    code=CODE,
    summary="moves that prepared objects make needless stay",
    why="A batch of a prepared loader is on the device already, and moving it there again copies nothing. Where it is not "
    "certain that all tensors still meet on one device without the moves, they stay.",
    example_before="mask = mask.to(device)",
    find=find,
    safety=Safety.NOTE,
)
