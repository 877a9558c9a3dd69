"""AM808: layers that get no gradient stop DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.made_of import parts_unread
from accel_migrate.analysis.poolers import poolers_unread
from accel_migrate.analysis.roles import Role
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM808"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    if training.place.module is not module or any(name == "find_unused_parameters" for name, _ in training.settings):
        return
    for built in training.prepared:
        if built.role is not Role.MODEL:
            continue
        for part in parts_unread(context.script.roles, context.script.graph, built.variable):
            where = f"line {part.line}" if part.module is module else f"{part.module.source.path.name}:{part.line}"
            message = (
                f"nothing computes with `{part.name}` of {part.owner.name} ({where}), so it gets no gradient, and on N processes "
                "training stops at the second step; take it out, or make the Accelerator with "
                "kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]"
            )
            yield change(CODE, training.place.after, message, loop=training.index, safety=Safety.NOTE)
        for part in poolers_unread(context.script.roles, context.script.graph, built.variable):
            where = f"line {part.line}" if part.module is module else f"{part.module.source.path.name}:{part.line}"
            message = (
                f"nothing reads the pooled output of `{part.name}` of {part.owner.name} ({where}), so its pooler gets no "
                "gradient, and on N processes training stops at the second step; pass add_pooling_layer=False there, or make "
                "the Accelerator with kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]"
            )
            yield change(CODE, training.place.after, message, loop=training.index, safety=Safety.NOTE)


RULE = Rule(
    code=CODE,
    name="unused_parameters",
    summary="layers that no forward reads",
    why="DistributedDataParallel waits for the gradient of every parameter. One that never comes is an error at the next step, "
    "unless `find_unused_parameters=True` makes it look for such parameters.",
    example_before="self.head, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)  # forward() reads head alone",
    example_after="self.head, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)  # forward() reads head alone",
    find=find,
    safety=Safety.NOTE,
)
