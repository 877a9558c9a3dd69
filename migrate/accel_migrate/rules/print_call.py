"""AM601: what is printed is printed once."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change, replace_callee
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM601"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for owner, call in training.prints:
        if owner is module:
            spelled = training.accelerator(module, call)
            edit = replace_callee(module.source, call, f"{spelled}.print")
            yield change(CODE, call, "prints once on each machine", [edit], loop=training.index, required=False)


RULE = Rule(
    code=CODE,
    name="print_call",
    summary="`print` becomes `accelerator.print`",
    why="Every process runs the script; without this each line appears N times.",
    example_before='print(f"epoch {epoch}")',
    example_after='accelerator.print(f"epoch {epoch}")',
    find=find,
)
