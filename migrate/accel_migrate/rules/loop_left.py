"""AM901: a training loop that is left as it was, and why."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM901"


def find(context: Context) -> Iterator[Change]:
    """Loops that are left have no training to look at; the pipeline reports them under this code."""
    return iter(())


RULE = Rule(
    code=CODE,
    summary="a training loop is left as it was",
    why="A loop is migrated whole or not at all: half a migration is worse than none. "
    "The note says what stood in the way.",
    example_before="loss.backward()  # no optimizer is visible",
    find=find,
    safety=Safety.NOTE,
)
