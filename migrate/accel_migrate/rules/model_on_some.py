"""AM403: a model that only some processes run, runs there without its wrapper."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change, note, replace_node
from accel_migrate.plan import Change
from accel_migrate.rule import Context, Rule

CODE = "AM403"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    found = [node for owner, node in training.bare if owner is module]
    for node in found if training.wraps_models else ():
        if node in training.distribution.unwrapped:
            continue
        spelled = training.accelerator(module, node)
        edit = replace_node(module.source, node, f"{spelled}.unwrap_model({module.source.code(node)})")
        yield change(context, CODE, node, "only some processes run it, so without its wrapper", [edit])
    if found:
        message = (
            "a condition on the rank decides which processes run the model here; with sharded weights (FSDP, ZeRO-3) all of "
            "them must: take the condition away before such a run"
        )
        yield note(context, CODE, found[0], message)


RULE = Rule(
    code=CODE,
    summary="a model that only some processes run",
    why="Weights that are sharded (FSDP, ZeRO-3) are gathered for each forward, and processes that a condition on the rank keeps "
    "out would not be there: a note says so. Whole weights need nobody else. With `--target accelerate` the model's wrapper may "
    "send buffers to all processes before a forward, so the bare model runs there.",
    example_before="if rank == 0:\n    accuracy = evaluate(model, test_loader)",
    example_after="if accelerator.is_main_process:\n    accuracy = evaluate(model, test_loader)",
    find=find,
)
