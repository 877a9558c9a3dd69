"""AM704: rank and world size are asked of the Accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.distribution.ranks import rank_option
from accel_migrate.edits import change, piece_changes
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM704"


def find(context: Context) -> Iterator[Change]:
    yield from piece_changes(context, CODE)
    replacements = [
        replacement for replacement in context.training.distribution.replacements if replacement.code == CODE
    ]
    for call in context.module.calls if replacements else ():
        option = rank_option(call)
        if option is not None:
            message = f"`{option}` is no longer read; take it out once no launch command passes it"
            yield change(CODE, call, message, safety=Safety.NOTE, loop=context.training.index)


RULE = Rule(
    code=CODE,
    name="process_rank",
    summary="reads of rank and world size become the Accelerator's",
    why="The variables of a launcher, and torch.distributed's own answers, are there only when a launcher started the script; "
    "the Accelerator answers on one process as well. An option `--local_rank` stays and is no longer read.",
    example_before='if int(os.environ["RANK"]) == 0:',
    example_after="if accelerator.is_main_process:",
    find=find,
)
