"""AM607: what every process does in files that are not changed, and what it asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accel_migrate.analysis.notes.deeds import ASKING, DEEDS, asks, caught_by, deed, opens_window
from accel_migrate.analysis.notes.elsewhere import IS_READ, done_by_all, done_by_callers, done_elsewhere, done_on_import
from accel_migrate.analysis.notes.written_once import is_done_once, written_once
from accel_migrate.edits import note
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM607"
_OF_NO_OTHER_RULE = ("saves something", "opens a database", "sends something")


def find(context: Context) -> Iterator[Change]:
    """What asks at the terminal, what opens windows, and what is done in files that are not changed."""
    yield from _asked(context)
    yield from _windows(context)
    yield from _done(context)


def _asked(context: Context) -> Iterator[Change]:
    """`input()` in the training's own file, by itself and where a script goes on without an answer."""
    module, script = context.module, context.script
    found = [call for call in module.calls_of(ASKING) if asks(module, call) and _by_all(context, call)]
    handlers = {call: caught_by(script, module, call) for call in found}
    for caught in (False, True):
        calls = [call for call in found if (handlers[call] is not None) is caught]
        if calls:
            handler = handlers[calls[0]]
            without = (
                f"the others get EOFError, which is caught ({module.place_of(*handler)}), and go on with another value: "
                "processes that train with different values, or for different numbers of steps, come apart or wait for ever"
                if handler is not None
                else "the others end with EOFError, and all with them"
            )
            message = (
                f"every process asks here{_as_in(calls)}, and of N processes only the first has the "
                f"terminal: {without}; ask where accelerator.is_main_process is true, and hand the answer on by "
                "broadcast_object_list"
            )
            yield note(context, CODE, calls[0], message)


def _as_in(calls: Sequence[ast.expr]) -> str:
    return f" (as in line {_lines(calls[1:])})" if len(calls) > 1 else ""


def _windows(context: Context) -> Iterator[Change]:
    """`plt.show()` in the training's own file."""
    module, script, training = context.module, context.script, context.training
    calls = [c for c in module.calls if opens_window(script, training, module, c) and _by_all(context, c)]
    calls = [c for c in calls if not is_done_once(script, training, module, c)]
    if calls:
        message = (
            f"every process opens this window{_as_in(calls)}, and where it waits until it is closed, "
            "the others wait for it at the next step; show it where accelerator.is_main_process is true"
        )
        yield note(context, CODE, calls[0], message)


def _by_all(context: Context, call: ast.expr) -> bool:
    return done_by_all(context.script, context.training, context.module, call)


def _done(context: Context) -> Iterator[Change]:
    """What is done here that no other rule speaks of, and in files without a part in the training, where no Accelerator comes."""
    module, training, script = context.module, context.training, context.script
    found: dict[tuple[str, str], list[ast.expr]] = {}
    guarded = written_once(script, training, module)
    for node in (*module.calls, *_handed_on(module)):
        if any(module.holds(statement, node) for statement in guarded):
            continue
        done = done_elsewhere(script, training, module, node, context.settings.prints_once)
        what = None
        if done is not None:
            before = next((said for name, said in found if name == _name(node)), done)
            what = (_name(node), before)
        if done is None and isinstance(node, ast.Call):
            unsaid = any(DEEDS[name](script, training, module, node) for name in _OF_NO_OTHER_RULE)
            done = deed(script, training, module, node) if unsaid else None
            what = ("", done) if done in _OF_NO_OTHER_RULE else None
        if what is not None and _by_all(context, node):
            found.setdefault(what, []).append(node)
    told = [f"{_name(nodes[0])}() (line {_lines(nodes)}) {what}" for (_, what), nodes in found.items()]
    if training.place.module is module:
        by_callers = done_by_callers(script, training, context.settings.prints_once)
        told += [f"what calls this file {by_callers}"] if by_callers is not None else []
        brought = done_on_import(script, training)
        told += [f"what this file imports {brought}"] if brought is not None else []
    if told:
        names = ", ".join(told)
        first = next((nodes[0] for nodes in found.values()), training.place.after)
        message = f"every process does this: {names}; see to it that only the one whose accelerator.is_main_process is true does"
        if IS_READ in names:
            message += (
                ", and that the others come by accelerator.wait_for_everyone() before they look for what it writes"
            )
        yield note(context, CODE, first, message)


def _name(node: ast.expr) -> str:
    return unparse(node.func if isinstance(node, ast.Call) else node)


def _handed_on(module: Module) -> Iterator[ast.expr]:
    """`drawing.keep` of `fit(model, at_end=drawing.keep)`."""
    for call in module.calls:
        given = [*call.args, *[keyword.value for keyword in call.keywords]]
        yield from (each for each in given if isinstance(each, ast.Name | ast.Attribute))


def _lines(calls: Sequence[ast.expr]) -> str:
    return ", ".join(str(line) for line in dict.fromkeys(call.lineno for call in calls))


RULE = Rule(
    code=CODE,
    summary="what files that are not changed do on every process",
    why="Every process runs the whole script. A logger, a checkpoint class or a question at the terminal in a file that no edit "
    "reaches happens N times.",
    example_before="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    find=find,
    safety=Safety.NOTE,
)
