"""AM802: a loss that is not a plain mean over samples weighs differently once gradients are averaged over processes.

Silent where `loss_reduced` proves a mean of samples that are not set against each other; AM812 speaks of losses of which
nothing can be proven.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.batch_rows import trains_on_share
from accel_migrate.analysis.notes.loss_reduced import pairs, reduced
from accel_migrate.edits import note
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM802"
_SUM = (
    "the loss {verb} summed over the batch ({line}), and gradients are averaged over processes: a step is as large as with "
    "one process's batch; for the sum over all of them multiply the sum alone by accelerator.num_processes{once}"
)
_UNEVEN = (
    "the loss {verb} divided by a count or a sum that {differs} ({line}), and every process weighs the same in the average; for "
    "the mean over all items divide the sum by accelerator.reduce(count) / accelerator.num_processes"
)
_WEIGHTED = (
    "the loss {verb} a mean weighted by class ({line}): each process divides by the weights of its own batch, and every process "
    "weighs the same in the average"
)
_BETWEEN = (
    "the loss {verb} between samples of a batch ({line}), and each process has those of its own batch alone: a sample meets as "
    "many others as batch_size allows, however many processes there are{split}"
)
_SPLIT = ", and those of batch_size / N where batches are split over processes"
_ONCE = ", once each has samples of its own"
_TOLD = {"sum": _SUM, "uneven": _UNEVEN, "weighted": _WEIGHTED, "between": _BETWEEN}


def find(context: Context) -> Iterator[Change]:
    graph, training = context.script.graph, context.training
    for backward in training.backwards:
        if backward.module is context.module:
            found, between = reduced(graph, backward), pairs(graph, backward)
            told = [found] if found.kind in _TOLD else []
            told += [between] if between is not None and found.kind != between.kind else []
            for kind, node, sure in told:
                yield note(context, CODE, backward.call, _message(context, _TOLD[kind], node, sure))
            if told:
                return


def _message(context: Context, text: str, node: ast.AST | None, sure: bool) -> str:
    owner: Module = next((m for m in context.script.project.modules if node in m.parents), context.module)
    where = "line" if owner is context.module else f"{owner.source.path.name}, line"
    shared = trains_on_share(context.script, context.training)  # AM805 says it where no loader is
    return text.format(
        line=f"{where} {getattr(node, 'lineno', 0)}",
        verb="is" if sure else "may be",
        split=_SPLIT if shared else "",
        once="" if shared else _ONCE,
        differs="differs from batch to batch" if shared else f"may differ between processes{_ONCE}",
    )


RULE = Rule(
    code=CODE,
    summary="a loss that is summed, averaged by a count that differs from batch to batch, or between samples of a batch",
    why="Averaging gradients over processes gives the gradient of the mean over all samples when each loss is a mean over as "
    "many samples. A sum is N times smaller than the sum over all, and a mean over tokens or a mask weighs each process "
    "alike, however many it had. A loss between samples, as contrastive ones are, knows those of one process's batch only.",
    example_before='loss = F.mse_loss(output, target, reduction="sum")',
    find=find,
    safety=Safety.NOTE,
)
