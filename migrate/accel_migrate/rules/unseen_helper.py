"""AM607: what every process does in files that are not changed, and what it asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import (
    asks,
    done_by_callers,
    done_elsewhere,
    done_on_import,
    goes_on_without_answer,
    is_called,
    may_run,
    opens_window,
)
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM607"


def find(context: Context) -> Iterator[Change]:
    """What asks at the terminal, what opens windows, and what is done in files that are not changed."""
    yield from _asked(context)
    yield from _windows(context)
    yield from _not_changed(context)


def _asked(context: Context) -> Iterator[Change]:
    """`input()` in the training's own file, by itself and where a script goes on without an answer."""
    module = context.module
    found = [call for call in module.calls if asks(module, call) and _by_all(context, call)]
    for caught in (False, True):
        calls = [call for call in found if goes_on_without_answer(module, call) is caught]
        if calls:
            lines = ", ".join(str(line) for line in dict.fromkeys(call.lineno for call in calls[1:]))
            without = (
                "the others get EOFError, which is caught here, and go on with another value: processes that train with "
                "different values, or for different numbers of steps, come apart or wait for ever"
                if caught
                else "the others end with EOFError, and all with them"
            )
            message = (
                f"every process asks here{f' (as in line {lines})' if lines else ''}, and of N processes only the first has the "
                f"terminal: {without}; ask where accelerator.is_main_process is true, and hand the answer on by "
                "broadcast_object_list"
            )
            yield change(CODE, calls[0], message, loop=context.training.index, safety=Safety.NOTE)


def _windows(context: Context) -> Iterator[Change]:
    """`plt.show()` in the training's own file."""
    module = context.module
    calls = [call for call in module.calls if opens_window(module, call) and _by_all(context, call)]
    if calls:
        lines = ", ".join(str(line) for line in dict.fromkeys(call.lineno for call in calls[1:]))
        message = (
            f"every process opens this window{f' (as in line {lines})' if lines else ''}, and where it waits until it is closed, "
            "the others wait for it at the next step; show it where accelerator.is_main_process is true"
        )
        yield change(CODE, calls[0], message, loop=context.training.index, safety=Safety.NOTE)


def _by_all(context: Context, call: ast.Call) -> bool:
    """Whether every process may come to a call."""
    module, training = context.module, context.training
    return not training.flow.only_main(module, call) and may_run(context.script, training, module, call)


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


RULE = Rule(
    code=CODE,
    name="unseen_helper",
    summary="what files that are not changed do on every process",
    why="Every process runs the whole script. A logger, a checkpoint class or a question at the terminal in a file that no edit "
    "reaches happens N times.",
    example_before="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    example_after="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    find=find,
    safety=Safety.NOTE,
)
