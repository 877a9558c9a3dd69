"""AM106: a method that makes the loss in the place of `forward` is registered, so that gradients are exchanged."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change, quoted
from accel_migrate.plan import Change, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM106"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    place = training.place
    if place.module is not module:
        return
    for model, name in training.forward_methods:
        later = [statement for statement, objects in place.again() if model in objects and model in place.waiting]
        after = later[0] if later else place.after
        spelled = training.accelerator(module, after)
        text = f"{spelled}.register_forward_method({model.text}, {quoted(module.source, name)})"
        message = f"{name}() makes the loss, and trains as a forward does"
        yield change(context, CODE, after, message, [Insert(after, (text,))])


RULE = Rule(
    code=CODE,
    summary="register a method of the model that makes the loss in the place of `forward`",
    why="FSDP gathers sharded weights for the model's `forward`, and a method that is called past it would meet parts of them. "
    "`register_forward_method` has them gathered for it too, and does nothing where weights are whole. Accelerate has no "
    "counterpart, and averages gradients for `forward` alone: with `--target accelerate` such a loop is left as it was.",
    example_before="loss = -model.log_prob(x).mean()",
    example_after='accelerator.register_forward_method(model, "log_prob")\nloss = -model.log_prob(x).mean()',
    find=find,
)
