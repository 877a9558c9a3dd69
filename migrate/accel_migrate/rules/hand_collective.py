"""AM705: barriers and reductions go through the Accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import piece_changes
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM705"


def find(context: Context) -> Iterator[Change]:
    yield from piece_changes(context, CODE)


RULE = Rule(
    code=CODE,
    name="hand_collective",
    summary="`barrier` and `all_reduce` become the Accelerator's",
    why="torch's own raise on one process. `all_reduce` works in place and `reduce` returns, so its result is bound again. In an "
    "evaluation it goes: there every process has the figure of all samples already, and adding up would count each N times.",
    example_before="dist.all_reduce(total)",
    example_after='total = accelerator.reduce(total, reduction="sum")',
    find=find,
)
