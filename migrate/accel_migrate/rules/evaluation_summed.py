"""AM404: an evaluation whose figures are of whole batches adds them up over processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.by_batch import Summed
from accel_migrate.edits import change, replace_node
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Edit, Insert, Repeat, Replace, Substitute
from accel_migrate.rule import Context, Rule
from accel_migrate.source import Source

CODE = "AM404"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for evaluation in training.evaluations:
        if not isinstance(evaluation, Summed):
            continue
        loop, source = evaluation.loop, module.source
        for owner, length in evaluation.lengths:
            if owner is module and training.timing.after_prepare(module, length):
                text = f"len({source.code(length.args[0])}.base_dataloader)"
                message = "counts the batches of all processes"
                yield change(context, CODE, length, message, [replace_node(source, length, text)])
        if loop.module is not module:
            continue
        spelled = training.accelerator(module, loop.statement)
        chosen = ""
        if evaluation.trains_if is not None:
            chosen = f"{source.code(loop.loader)} if {source.code(evaluation.trains_if)} else "
        edits: list[Edit] = [*_wrap(source, loop.loader, f"{chosen}{spelled}.whole_batches(", ")")]
        for figure in evaluation.figures:
            opening, closing = ("list(", "))") if figure in evaluation.listed else ("", ")")
            edits += _wrap(source, figure, f"{spelled}.sum_for_metrics({opening}", closing)
        for entry in evaluation.entries:
            edits.append(replace_node(source, entry.func, f"{source.code(entry.func.value)}.extend"))  # type: ignore[attr-defined]
            edits += _wrap(source, entry.args[0], f"{spelled}.sum_for_metrics([", "])")
        for statement in evaluation.fed:
            edits.append(Substitute(statement, (_repeated(source, statement.value, f"{spelled}.sum_for_metrics"),)))
        for replay in evaluation.replays:
            names = ", ".join(replay.names)
            sent = f"({names})" if len(replay.names) > 1 else names
            head = f"for {names} in {spelled}.sum_for_metrics([{sent}])"
            ends = ast.Break in replay.leaves
            edits += [Repeat(statement, head, "continue" if ends else "") for statement in replay.statements]
            edits += [Insert(replay.statements[-1], ("break",), "after")] if ends else []
        behind = source.code(loop.loader) + (".iterable" if evaluation.rebound else "")
        seen = f"{behind}.batches_seen" if evaluation.prepares else f"len({behind})"
        for node, form in evaluation.counts:
            edits.append(_replace_bracketed(module, node, form.format(seen)))
        where = "in the phases that evaluate, " if evaluation.trains_if is not None else ""
        message = f"{where}each process evaluates some of the batches, and their figures are added up"
        yield change(context, CODE, loop.statement, message, edits)


def _repeated(source: Source, call: ast.expr, gathers: str) -> str:
    """The call of an object that is fed a figure, once for each batch."""
    assert isinstance(call, ast.Call)
    given = ", ".join(source.code(argument) for argument in call.args)
    one, fed = (f"({given})", "*figure") if len(call.args) > 1 else (given, "figure")
    return f"for figure in {gathers}([{one}]):\n    {source.code(call.func)}({fed})"


def _replace_bracketed(module: Module, node: ast.expr, text: str) -> Replace:
    """In the place of `i + 1`, with the brackets that an operator asked for."""
    start, end, whole = module.source.start(node), module.source.end(node), module.source.text
    around = isinstance(module.parents[node], ast.BinOp | ast.AugAssign)
    if around and whole[start - 1] == "(" and whole[end : end + 1] == ")":
        start, end = start - 1, end + 1
    return Replace(start, end, text)


def _wrap(source: Source, node: ast.expr, before: str, after: str) -> tuple[Replace, Replace]:
    start, end = source.start(node), source.end(node)
    return Replace(start, start, before), Replace(end, end, after)


RULE = Rule(
    code=CODE,
    summary="an evaluation by whole batches, whose figures are added up over processes",
    why="A mean of batch means, and any other figure of a batch, is the original's where the batch is. So each process gets "
    "some of the batches as they are, and what the loop adds up, it adds up over processes; what is no sum runs for the "
    "batches of all, in their order. A batch that only fills the last round counts nothing.",
    example_before="for x, y in val_loader:\n    total += criterion(model(x), y).item()\nprint(total / len(val_loader))",
    example_after="for x, y in accelerator.whole_batches(val_loader):\n"
    "    total += accelerator.sum_for_metrics(criterion(model(x), y).item())\n"
    "print(total / len(val_loader.base_dataloader))",
    find=find,
)
