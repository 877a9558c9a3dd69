"""AM402: an evaluation whose figure depends on how samples are grouped keeps its loader whole on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.processes.timing import is_another
from accel_migrate.analysis.trainings.phases import is_chosen
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.edits import note
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM402"


def find(context: Context) -> Iterator[Change]:
    module = context.module
    for evaluation in context.training.evaluations:
        if not isinstance(evaluation, Whole) or evaluation.loop.module is not module or evaluation.on_main:
            continue
        if (
            evaluation.by_hand is None
        ):  # else the script shares its data out and adds up by itself, which goes on working
            what = (
                "each process evaluates its own shard of the loader it trains on"
                if not evaluation.calls and _is_shared(context, evaluation.loop)
                else "every process evaluates all of the data"
            )
            if is_chosen(context.script.roles, evaluation.loop):
                what = "in the phases that evaluate, every process goes through all of the data"
            length = _length_of_all(evaluation.loop) if what.startswith("each") else None
            less = (
                f"; `{unparse(length)}` is that of all, so what is divided by it is N times too small" if length else ""
            )
            message = f"{what}, because {evaluation.reason}{_where(evaluation)}{less}"
            yield note(context, CODE, evaluation.loop.statement, message)


def _is_shared(context: Context, loop: LoaderLoop) -> bool:
    """Whether a loop reads a loader that is prepared, and not another one that has its name by then."""
    training, module = context.training, loop.module
    another = is_another(context.script.graph, training.timing, module, loop.loader)
    return training.holds(module.variable(loop.loader)) and not another


def _length_of_all(loop: LoaderLoop) -> ast.Call | None:
    """`len(loader.dataset)` in the function that evaluates."""
    module = loop.module
    for call in module.walk(loop.function or module.tree, ast.Call):
        data = call.args[0] if is_length(call) else None
        if isinstance(data, ast.Attribute) and data.attr == "dataset":
            if module.variable(data.value) == module.variable(loop.loader):
                return call
    return None


def _where(evaluation: Whole) -> str:
    """The line that is the reason, where that is not the loop's own."""
    module = evaluation.module or evaluation.loop.module
    if module is not evaluation.loop.module:
        return f" ({module.source.path.name}:{evaluation.line})"
    return f" (line {evaluation.line})" if evaluation.line != evaluation.loop.statement.lineno else ""


RULE = Rule(
    code=CODE,
    summary="an evaluation loader that is not sharded",
    why="Sharing out the batches would change a figure such as a mean of batch means. Left whole, the figure is the "
    "original's on any number of processes; evaluation is as long as it was on one.",
    example_before="val_loss += criterion(model(x), y).item()  # later: / len(val_loader)",
    find=find,
    safety=Safety.NOTE,
)
