"""AM303: an autocast region becomes the Accelerator's, exactly where it was."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change, note, replace_node
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM303"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for region in training.precision.regions:
        if region.module is module:
            spelled = training.accelerator(module, region.call)
            edit = replace_node(module.source, region.whole, f"{spelled}.autocast()")
            yield change(context, CODE, region.call, "runs in the Accelerator's precision", [edit])
    first = next((region for region in training.precision.regions if region.module is module), None)
    if first is not None and context.settings.target == "accelerate":
        yield note(context, CODE, first.call, _WRAPPED)


_WRAPPED = (
    "Accelerate also wraps the model's own forward, which then gives float32 back: a loss that was computed on the narrow "
    "outputs differs in the last digits"
)


RULE = Rule(
    code=CODE,
    summary="`autocast(...)` becomes `accelerator.autocast()`",
    why="The precision is chosen once, where the Accelerator is made, from the script's own condition. `torch.cuda.amp` does "
    'nothing on a CPU, so there the argument is "no". Regions stay where they were, and `autocast_forward=False` leaves the '
    "model's outputs in the type they had. Regions inside models, and regions that ask for another precision than the first "
    "one, stay torch's own.",
    example_before="with torch.cuda.amp.autocast(enabled=args.amp):",
    example_after="with accelerator.autocast():",
    find=find,
)
