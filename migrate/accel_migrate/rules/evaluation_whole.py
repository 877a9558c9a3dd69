"""AM402: an evaluation whose figure depends on how samples are grouped keeps its loader whole on every process."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.trainings.entries import is_chosen
from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM402"


def find(context: Context) -> Iterator[Change]:
    module = context.module
    for evaluation in context.training.evaluations:
        if isinstance(evaluation, Whole) and evaluation.loop.module is module and not evaluation.on_main:
            shared = not evaluation.calls and context.training.holds(module.variable(evaluation.loop.loader))
            what = (
                "each process evaluates its own shard of the loader it trains on"
                if shared
                else "every process evaluates all of the data"
            )
            if is_chosen(context.script.roles, evaluation.loop):
                what = "in the phases that evaluate, every process goes through all of the data"
            message = f"{what}, because {evaluation.reason} (line {evaluation.line})"
            if evaluation.by_hand is not None:
                message = (
                    f"the script shares this out and adds up by itself (line {evaluation.line}), which goes on working"
                )
            yield change(CODE, evaluation.loop.statement, message, loop=context.training.index, safety=Safety.NOTE)


RULE = Rule(
    code=CODE,
    name="evaluation_whole",
    summary="an evaluation loader that is not sharded",
    why="Sharing out the batches would change a figure such as a mean of batch means. Left whole, the figure is the "
    "original's on any number of processes; evaluation is as long as it was on one.",
    example_before="val_loss += criterion(model(x), y).item()  # later: / len(val_loader)",
    example_after="val_loss += criterion(model(x), y).item()  # later: / len(val_loader)",
    find=find,
    safety=Safety.NOTE,
)
