"""AM504: pictures, tables and logs are written by the main process alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import read_in_run
from accel_migrate.analysis.notes.read_elsewhere import waits_behind
from accel_migrate.analysis.notes.renewed import renewed
from accel_migrate.analysis.notes.written_once import concerns, writings, written_once
from accel_migrate.analysis.storage.files import runs_command
from accel_migrate.analysis.storage.read_back import read_back
from accel_migrate.edits import change, note
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Edit, Guard, Insert, WorkOut
from accel_migrate.rule import Context, Rule

CODE = "AM504"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    again = [one.statement for one in renewed(context.script, training, module) if one.whole]
    for writing in writings(context.script, training, module):
        if any(module.holds(around, writing.statement) for around in again):
            continue  # another rule guards the whole
        if writing.spelled is not None and not writing.trouble:
            edits: list[Edit] = [Guard(writing.statement, f"{writing.spelled}.is_main_process")]
            if writing.ahead is not None:
                edits.append(_worked_out(module, writing.statement, writing.ahead, writing.name))
            yield change(context, CODE, writing.statement, "one process writes the file", edits)
        else:
            named = training.accelerator(module, writing.statement) is not None
            early = "it runs before `prepare`, where the Accelerator may not be made yet"
            why = writing.trouble or (early if named else _not_handed(module, writing.statement))
            message = (
                f"every process writes this file, because {why}; have only the process whose "
                f"accelerator.is_main_process is true write it{_kept_apart(context, writing.statement)}"
            )
            yield note(context, CODE, writing.statement, message)
    yield from _waits(context)
    yield from _commands(context)


def _not_handed(module: Module, statement: ast.stmt) -> str:
    function = module.scope(statement).function
    name = getattr(function, "name", "")
    return f"{name}() is not handed the Accelerator" if name else "the Accelerator is not made yet"


def _kept_apart(context: Context, statement: ast.stmt) -> str:
    """What more must be done by hand where the file is read: one process may find what another has only begun."""
    found = read_in_run(context.script, context.training, context.module, statement)
    if found is None:
        return ""
    file, call = found
    where = f"line {call.lineno}" + (
        f" of {context.script.roles.project.file_name(file)}" if file is not context.module else ""
    )
    return (
        f", and keep it from those that read it ({where}): they need accelerator.wait_for_everyone() after all have asked "
        "whether the file is there, and after it is written, or one may read what another has only begun"
    )


def _worked_out(module: Module, statement: ast.stmt, argument: ast.expr, name: str) -> WorkOut:
    """`os.remove(kept.pop())`: every process takes it out of its own list; and every process runs the model."""
    while module.resolve(name, module.scope(statement)) is not None:
        name += "_out"
    return WorkOut(statement, argument, name)


def _waits(context: Context) -> Iterator[Change]:
    """What one process writes and the same function reads is there when it is read."""
    module, training = context.module, context.training
    saved = [save.statement for save in training.storage.saves if save.module is module]
    once = [*written_once(context.script, training, module), *saved]
    for statement in read_back(module, once):
        spelled = training.ready(module, statement)
        block = module.block(statement)
        if block[max(block.index(statement) - 1, 0)] in training.distribution.barriers:
            continue
        loads = [
            load for load in training.storage.loads if training.storage.waits(load)
        ]  # of which another rule speaks
        if any(load.call in module.walk(statement) for load in loads if load.module is module):
            continue
        if spelled is not None and not training.flow.on_some(module, statement):
            wait = Insert(statement, (f"{spelled}.wait_for_everyone()",), "before", above_comments=False)
            yield change(context, CODE, statement, "waits until the file is written", [wait])
    for statement, spelled in waits_behind(context.script, training, module).items():
        wait = Insert(statement, (f"{spelled}.wait_for_everyone()",), "after")
        yield change(context, CODE, statement, "waits until the file is written", [wait])


def _commands(context: Context) -> Iterator[Change]:
    """One note for the commands of a file: whether what they do may be done N times is not visible to the analysis."""
    module, training = context.module, context.training
    found = [
        c
        for c in module.calls
        if runs_command(module, c) and concerns(context.script, training, module, module.statement(c))
    ]
    if found:
        more = ", ".join(str(line) for line in dict.fromkeys(call.lineno for call in found[1:]))
        message = (
            f"every process runs this command{f' (as in line {more})' if more else ''}; if it writes, have only the process "
            "whose accelerator.is_main_process is true run it, and after what it reads is written"
        )
        yield note(context, CODE, found[0], message)


RULE = Rule(
    code=CODE,
    summary="write files on the main process only",
    why="Every process runs the script; N of them writing one file at once leave it torn, and tables get every row N times. "
    "Where all of them read the file back, they wait until it is written.",
    example_before='save_image(samples, "samples.png")',
    example_after='if accelerator.is_main_process:\n    save_image(samples, "samples.png")',
    find=find,
)
