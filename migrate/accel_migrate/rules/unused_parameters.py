"""AM808: layers that get no gradient stop DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.notes.outputs_left import outputs_left
from accel_migrate.analysis.notes.poolers import poolers_unread
from accel_migrate.analysis.notes.without_gradient import parts_without
from accel_migrate.analysis.program.scopes import Variable
from accel_migrate.analysis.values.made_of import Part, freezes, made_of, parts_unread
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM808"
_STOPS = "and on N processes training stops at the second step"
_ADVICE = "or make the Accelerator with kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    if training.place.module is not module or any(name == "find_unused_parameters" for name, _ in training.settings):
        return
    for built in training.prepared:
        for part, told in _parts(context, built.variable) if built.role is Role.MODEL else ():
            where = f"line {part.line}" if part.module is module else f"{part.module.source.path.name}:{part.line}"
            message = told.format(part=f"`{part.name}` of {part.owner.name} ({where})")
            yield change(CODE, training.place.after, f"{message}, {_ADVICE}", loop=training.index, safety=Safety.NOTE)


def _parts(context: Context, model: Variable) -> Iterator[tuple[Part, str]]:
    """What gets no gradient, each with what to say of it and how to do without."""
    roles, graph = context.script.roles, context.script.graph
    for part in parts_unread(roles, graph, model):
        yield part, f"nothing computes with {{part}}, so it gets no gradient, {_STOPS}; take it out"
    for part in poolers_unread(roles, graph, model):
        told = "nothing reads the pooled output of {part}, so its pooler gets no gradient"
        yield part, f"{told}, {_STOPS}; pass add_pooling_layer=False there"
    if not freezes(roles, model):
        found = [
            *parts_without(roles, graph, made_of(roles, graph, model)),
            *outputs_left(context.script, context.training, model),
        ]
        for name in dict.fromkeys((part.owner, part.name) for part in found):
            first = next(part for part in found if (part.owner, part.name) == name)
            yield (
                first,
                f"{{part}} {first.why}, {_STOPS}; take it out, or freeze it by requires_grad_(False) before prepare",
            )


RULE = Rule(
    code=CODE,
    name="unused_parameters",
    summary="layers that get no gradient",
    why="DistributedDataParallel waits for the gradient of every parameter. One that never comes is an error at the next step, "
    "unless `find_unused_parameters=True` makes it look for such parameters.",
    example_before="self.head, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)  # forward() reads head alone",
    example_after="self.head, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)  # forward() reads head alone",
    find=find,
    safety=Safety.NOTE,
)
