"""AM401: evaluation gathers outputs and targets right after the forward, so that every sample counts exactly once."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.evaluation.evaluation import Gather
from accel_migrate.edits import change, replace_node
from accel_migrate.plan import Change, Edit, Insert, Remove
from accel_migrate.rule import Context, Rule

CODE = "AM401"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for evaluation in training.evaluations:
        if not isinstance(evaluation, Gather) or evaluation.loop.module is not module:
            continue
        spelled = training.accelerator(module, evaluation.after)
        names, values = ", ".join(evaluation.names), ", ".join(evaluation.values)
        gathered = f"{names} = {spelled}.gather_for_metrics(({values}))"
        edits: list[Edit] = [Insert(evaluation.after, (gathered,), "after")]
        for size, row in evaluation.sizes:
            edits.append(replace_node(module.source, size, f"{row}.size(0)"))
        for part, name in evaluation.parts:
            edits.append(replace_node(module.source, part, name))
        edits += [Remove(statement) for statement in evaluation.unread]
        message = f"gathers {' and '.join(evaluation.names)} over processes: each sample counts once"
        yield change(context, CODE, evaluation.after, message, edits)


RULE = Rule(
    code=CODE,
    summary="gather outputs and targets after the forward of an evaluation",
    why="On N processes each sees a part of the data, filled up so that all get the same number of batches. Gathering "
    "drops what was filled up; counts and summed losses below it stay as they were and are the original's.",
    example_before="outputs = model(inputs)\ncorrect += (outputs.argmax(1) == targets).sum().item()",
    example_after="outputs = model(inputs)\noutputs, targets = accelerator.gather_for_metrics((outputs, targets))\n"
    "correct += (outputs.argmax(1) == targets).sum().item()",
    find=find,
)
