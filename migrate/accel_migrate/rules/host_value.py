"""AM205: a batch that was read on the CPU before it was moved comes from the device now, and back for that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.edits import change, dot
from accel_migrate.plan import Change, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM205"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    stays = training.start.cpu == "True"  # on the CPU, whatever there is
    for read in training.fetched if not stays else ():
        if read.module is module:
            at = module.source.end(read.value)
            if isinstance(read.call.func, ast.Attribute) and read.call.func.value is read.value:
                at = dot(module.source, read.call.func)
            edit = Replace(at, at, ".cpu()")
            yield change(context, CODE, read.call, "the batch comes from the device now", [edit])


RULE = Rule(
    code=CODE,
    summary="`.cpu()` before a batch is read by numpy",
    why="A prepared loader hands out batches on the device, and numpy reads only the CPU's memory. On the CPU nothing changes.",
    example_before="weights = counts(targets.numpy())",
    example_after="weights = counts(targets.cpu().numpy())",
    find=find,
)
