"""AM602: one progress bar is shown on each machine, and it counts what all processes do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.trainings.step_counts import Ended, ended_by
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.edits import add_argument, change, note, opening_bracket
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Guard, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM602"
_BARS = {"tqdm", "trange", "tqdm_notebook", "tnrange"}
_SIZE = re.compile(r"(len\(\w+\)|\w+\.(shape\[0\]|size\(0\)|size\(\)\[0\]))$")


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for call in module.calls:
        if training.distribution.runs_on_main_only(module, call):
            continue
        once = context.settings.prints_once
        if _is_bar(context, call):
            spelled = training.ready(module, call)
            if once and spelled is not None and not any(keyword.arg in ("disable", None) for keyword in call.keywords):
                edit = add_argument(module.source, call, f"disable=not {spelled}.is_local_main_process")
                yield change(context, CODE, call, "one bar on each machine", [edit], required=False)
            yield from _counted(context, call)
        elif once and _is_write(context, call):
            spelled = training.ready(module, call)
            if spelled is not None:
                guard = Guard(module.statement(call), f"{spelled}.is_local_main_process")
                yield change(context, CODE, call, "written once on each machine", [guard], required=False)


def _is_bar(context: Context, call: ast.Call) -> bool:
    dotted = context.module.qualified(call.func) or ""
    return dotted.startswith("tqdm") and dotted.rpartition(".")[2] in _BARS


def _is_write(context: Context, call: ast.Call) -> bool:
    """`tqdm.write("...")` or `bar.write("...")` as a statement."""
    module = context.module
    if (
        not isinstance(call.func, ast.Attribute)
        or call.func.attr != "write"
        or not isinstance(module.parents[call], ast.Expr)
    ):
        return False
    dotted = module.qualified(call.func)
    if dotted is not None:
        return dotted.startswith("tqdm")
    bound = [binding.value for binding in module.bindings_of(call.func.value)]
    return any(isinstance(value, ast.Call) and _is_bar(context, value) for value in bound)


def _counted(context: Context, call: ast.Call) -> Iterator[Change]:
    """A bar that is moved on by hand towards a total of its own counts what all processes do."""
    training, module = context.training, context.module
    total = _total(call)
    if total is None:
        return
    for update in _updates(context, call):
        spelled = training.ready(module, update)
        step = update.args[0] if update.args else None
        if spelled is None or not _in_shared_loop(context, update):
            continue
        if step is not None and _SIZE.fullmatch(unparse(step)):
            end = module.source.end(step)
            edit = Replace(end, end, f" * {spelled}.num_processes")
            yield change(context, CODE, update, "counts the samples of all processes", [edit], required=False)
        elif _moves_by_one(step):
            counted = _batches_counted(context, total)
            if counted == "before":
                bracket = opening_bracket(module.source, update)
                edit = Replace(bracket + 1, module.source.end(update) - 1, f"{spelled}.num_processes")
                yield change(context, CODE, update, "counts the batches of all processes", [edit], required=False)
            elif counted != "after" and _ends_with_data(context, update):
                message = (
                    f"the bar's total, {unparse(total)}, is reached in steps of one process, and on N processes each has "
                    "N times fewer; divide it by accelerator.num_processes if it stands for all of the data"
                )
                yield note(context, CODE, call, message)


def _total(call: ast.Call) -> ast.expr | None:
    total = next((keyword.value for keyword in call.keywords if keyword.arg == "total"), None)
    if total is None and call.args and isinstance(call.args[0], ast.Call):
        inner = call.args[0]
        if isinstance(inner.func, ast.Name) and inner.func.id == "range" and len(inner.args) == 1:
            return inner.args[0]
    return total if not call.args else None


def _moves_by_one(step: ast.expr | None) -> bool:
    return step is None or (isinstance(step, ast.Constant) and step.value == 1)


def _batches_counted(context: Context, total: ast.expr) -> str:
    """When the batches that a total stands for were counted: "before" or "after" prepare; empty if it counts no batches."""
    module, training = context.module, context.training
    places: list[ast.expr] = [total]
    places += [b.value for b in module.bindings_of(total) if b.value is not None]
    for place in places:
        for node in walk(place):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
                if training.holds(module.variable(node.args[0])):
                    return "after" if training.timing.after_prepare(module, node) else "before"
    return ""


def _in_shared_loop(context: Context, update: ast.Call) -> bool:
    """Whether the bar moves in a loop over batches that this process was given as its shard."""
    return any(context.training.shares(loop) for loop in _loops_around(context, update))


def _ends_with_data(context: Context, update: ast.Call) -> bool:
    """Whether the loop that moves the bar goes through its data; a count of steps is reached on N processes too."""
    graph, after_prepare = context.script.graph, context.training.timing.after_prepare
    return all(ended_by(graph, loop, after_prepare) is Ended.DATA for loop in _loops_around(context, update))


def _loops_around(context: Context, update: ast.Call) -> list[LoaderLoop]:
    around = set(context.module.ancestors(update))
    return [loop for loop in context.training.loops if loop.trains and loop.statement in around]


def _updates(context: Context, call: ast.Call) -> list[ast.Call]:
    """The `bar.update(...)` calls of the bar that a call makes."""
    module = context.module
    parent = module.parents[call]
    target = parent.optional_vars if isinstance(parent, ast.withitem) else None
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    variable = module.variable(target) if target is not None else None
    return [
        other
        for other in module.calls
        if variable is not None
        and isinstance(other.func, ast.Attribute)
        and other.func.attr == "update"
        and module.variable(other.func.value) == variable
        and _is_of(module, other.func.value, call)
    ]


def _is_of(module: Module, bar: ast.expr, call: ast.Call) -> bool:
    """Whether a name may be the bar of one call; another bar may have the same name."""
    if not isinstance(bar, ast.Name):
        return True
    return any(binding.statement is module.statement(call) for binding in reaching(module, bar))


RULE = Rule(
    code=CODE,
    summary="show a progress bar on the main process of each machine",
    why="Every process runs the script; N bars on one terminal overwrite each other. `accel launch` shows the first process "
    "of each machine, so a bar is left alone unless `--prints once` asks for it. A bar around a prepared loader has the "
    "right length by itself; one that is moved on by the samples of a batch must count those of the other processes too.",
    example_before="for batch in tqdm(loader): ...",
    example_after="for batch in tqdm(loader, disable=not accelerator.is_local_main_process): ...",
    find=find,
)
