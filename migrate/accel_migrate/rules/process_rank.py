"""AM704: rank and world size are asked of the Accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import piece_changes
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM704"


def find(context: Context) -> Iterator[Change]:
    yield from piece_changes(context, CODE)


RULE = Rule(
    code=CODE,
    summary="reads of rank and world size become the Accelerator's",
    why="The variables of a launcher, and torch.distributed's own answers, are there only when a launcher started the script; "
    "the Accelerator answers on one process as well.",
    example_before='if int(os.environ["RANK"]) == 0:',
    example_after="if accelerator.is_main_process:",
    find=find,
)
