"""AM607: what every process does in files that were not analysed, or are not changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import asks, done_by_callers, done_elsewhere, done_on_import, is_called
from accel_migrate.analysis.program.libraries import is_library
from accel_migrate.analysis.program.scopes import Module
from accel_migrate.analysis.values.contents import contents
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM607"


def find(context: Context) -> Iterator[Change]:
    """One note for each file and kind: what was not analysed, and what was and is not changed."""
    yield from _not_analysed(context)
    yield from _asked(context)
    yield from _not_changed(context)


def _not_analysed(context: Context) -> Iterator[Change]:
    """Functions that get what is prepared, and all that is called for its effect alone."""
    module, training = context.module, context.training
    found: dict[str, ast.Call] = {}
    for call in module.calls:
        given = [*call.args, *[keyword.value for keyword in call.keywords]]
        gets = any(training.holds(module.variable(a)) for a in given if isinstance(a, ast.Name | ast.Attribute))
        acts = isinstance(module.parents[call], ast.Expr)
        if not (gets or acts) or not training.timing.after_prepare(module, call):
            continue
        if training.flow.only_main(module, call):
            continue
        name = _unseen(context, module, call.func) if gets or acts else None
        name = name or (_made_unseen(context, call) if acts else None)
        if name is not None:
            found.setdefault(name, call)
    if found:
        names = ", ".join(f"{name} (line {call.lineno})" for name, call in found.items())
        message = (
            f"every process runs code outside of the files that were analysed: {names}; hand its file to accel-migrate as "
            "well, or see to it that it writes and logs once, and counts each sample once"
        )
        if any(wrapping.is_data_parallel for wrapping in training.distribution.wrappings):
            message += "; DataParallel moved to the GPU what the model is called with there, and nothing does now"
        yield change(CODE, next(iter(found.values())), message, loop=training.index, safety=Safety.NOTE)


def _asked(context: Context) -> Iterator[Change]:
    """`input()` in the training's own file."""
    module, training = context.module, context.training
    for call in module.calls:
        function = module.scope(call).function
        runs = function is None or is_called(context.script, training, function)
        if asks(module, call) and runs and not training.flow.only_main(module, call):
            message = (
                "every process asks here, and of N processes only the first has the terminal: the others end with EOFError, "
                "and all with them; ask where accelerator.is_main_process is true, and hand the answer on by "
                "broadcast_object_list"
            )
            yield change(CODE, call, message, loop=training.index, safety=Safety.NOTE)
            return


def _not_changed(context: Context) -> Iterator[Change]:
    """Functions of files without a part in the training, where no Accelerator comes."""
    module, training = context.module, context.training
    found: dict[str, tuple[ast.Call, str]] = {}
    for call in module.calls:
        if context.script.roles.target(module, call) is None:
            continue
        function = module.scope(call).function
        runs = function is None or module.scope(call).owner_class or is_called(context.script, training, function)
        if runs and not training.flow.only_main(module, call) and unparse(call.func) not in found:
            what = done_elsewhere(context.script, training, module, call, context.settings.prints_once)
            if what is not None:
                found[unparse(call.func)] = call, what
    told = [f"{name}() (line {call.lineno}) {what}" for name, (call, what) in found.items()]
    if training.place.module is module:
        done = done_by_callers(context.script, training, context.settings.prints_once)
        told += [f"what calls this file {done}"] if done is not None else []
        brought = done_on_import(context.script, training)
        told += [f"what this file imports {brought}"] if brought is not None else []
    if told:
        names = ", ".join(told)
        first = next((call for call, _ in found.values()), training.place.after)
        message = f"every process does this: {names}; see to it that only the one whose accelerator.is_main_process is true does"
        yield change(CODE, first, message, loop=training.index, safety=Safety.NOTE)


def _unseen(context: Context, module: Module, function: ast.expr) -> str | None:
    """The name of an imported function that is neither the project's nor a known library's."""
    dotted = module.qualified(function)
    if dotted is None or context.script.roles.project.definition(module, function) is not None:
        return None
    return None if is_library(dotted) else f"{unparse(function)}()"


def _made_unseen(context: Context, call: ast.Call) -> str | None:
    """`logger.scalar("loss", ...)` where `logger = Logger()` comes from elsewhere, handed over or not."""
    if not isinstance(call.func, ast.Attribute):
        return None
    module = context.module
    variable = module.variable(call.func.value)
    if variable is None or context.script.roles.of(variable):
        return None  # a model, an optimizer, a scheduler
    for owner, part in contents(context.script.graph, module, call.func.value):
        in_loop = any(isinstance(parent, ast.For | ast.While) for parent in owner.ancestors(part))
        if isinstance(part, ast.Call) and not in_loop and _unseen(context, owner, part.func) is not None:
            return f"{unparse(call.func)}()"
    return None


RULE = Rule(
    code=CODE,
    name="unseen_helper",
    summary="code outside of the files that were analysed",
    why="Every process runs the whole script. A logger, a checkpoint class or an evaluation in a file that accel-migrate did not "
    "see writes its files N times, and an evaluation there goes through all of the data on every process.",
    example_before="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    example_after="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    find=find,
    safety=Safety.NOTE,
)
