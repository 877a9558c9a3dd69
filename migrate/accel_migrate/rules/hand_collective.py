"""AM705: barriers and reductions go through the Accelerator."""

from __future__ import annotations

import re
from collections.abc import Iterator

from accel_migrate.edits import note, piece_changes
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM705"
_EXTREME = re.compile(r"reduction=.(max|min)")


def find(context: Context) -> Iterator[Change]:
    yield from piece_changes(context, CODE)
    if context.settings.target == "accelerate":
        for replacement in context.training.distribution.replacements:
            if replacement.module is context.module and replacement.text and _EXTREME.search(replacement.text):
                message = "Accelerate reduces to a sum or a mean only; gather here and take the extreme by hand"
                yield note(context, CODE, replacement.node, message)


RULE = Rule(
    code=CODE,
    summary="`barrier`, `all_reduce` and `reduce` become the Accelerator's",
    why="torch's own raise on one process. They work in place and `accelerator.reduce` returns, so its result is bound again. In "
    "an evaluation it goes: there every process has the figure of all samples already, and adding up would count each N times.",
    example_before="dist.all_reduce(total)",
    example_after='total = accelerator.reduce(total, reduction="sum")',
    find=find,
)
