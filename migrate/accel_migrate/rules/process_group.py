"""AM701: the Accelerator initialises and destroys the process group, and gives each its device."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.distribution.distribution import GROUP
from accel_migrate.edits import piece_changes
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = GROUP


def find(context: Context) -> Iterator[Change]:
    yield from piece_changes(context, CODE)


RULE = Rule(
    code=CODE,
    summary="`init_process_group`, `set_device` and `destroy_process_group` go",
    why="The Accelerator reads from the launcher who this process is, joins the others with the backend of its device, and "
    "sets the device. On one process there is no group at all. `destroy_process_group()` becomes `end_training()`.",
    example_before='dist.init_process_group("nccl")\ntorch.cuda.set_device(local_rank)',
    example_after="accelerator = Accelerator()",
    find=find,
)
