"""AM305: the scaler's state leaves checkpoints that the script writes and reads by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.edits import change
from accel_migrate.items import without_item
from accel_migrate.plan import Change, Edit, Remove
from accel_migrate.rule import Context, Rule

CODE = "AM305"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    scaling = training.precision.scaling
    for owner, call in scaling.stored:
        if owner is module:
            parent = module.parents[call]
            edit: Edit
            if isinstance(parent, ast.Dict):
                key = parent.keys[parent.values.index(call)]
                edit = without_item(module.source, key if key is not None else call, call)
            else:
                edit = Remove(module.statement(call))
            yield change(context, CODE, call, _MESSAGE, [edit])
    for owner, statement in scaling.restored:
        if owner is module:
            yield change(context, CODE, statement, _MESSAGE, [Remove(statement)])


_MESSAGE = (
    "the scale is not in this checkpoint any more and starts anew on resuming; accelerator.save_state() would keep it"
)
RULE = Rule(
    code=CODE,
    summary="the scaler's state leaves the script's checkpoints",
    why="The Accelerator keeps the scaler. After resuming, the scale is found again within some steps; `save_state` and "
    "`load_state` of the Accelerator keep it exactly.",
    example_before='torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)',
    example_after='accelerator.save({"model": accelerator.get_state_dict(model)}, path)',
    find=find,
)
