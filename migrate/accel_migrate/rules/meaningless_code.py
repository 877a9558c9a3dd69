"""AM107: what does nothing any more goes, with its calls."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM107"


def find(context: Context) -> Iterator[Change]:
    """What a rewrite leaves behind is known once it is made; the pipeline looks for it then, under this code."""
    return iter(())


RULE = Rule(
    code=CODE,
    summary="functions and branches that do nothing any more go",
    why="A function whose last statement went, and the calls of it, would only puzzle a reader; so would an `if` whose two "
    "branches became the same. Only what the migration itself emptied goes.",
    example_before="def setup(rank, world_size):\n    dist.init_process_group('nccl', rank=rank, world_size=world_size)\n\n"
    "setup(rank, world_size)",
    example_after="",
    find=find,
)
