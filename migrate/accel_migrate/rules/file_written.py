"""AM504: pictures, tables and logs are written by the main process alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import is_called
from accel_migrate.analysis.storage.files import Written, downloads, runs_command, runs_model
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.plan import Change, Guard, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM504"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    # Weights are another rule's: they must be collected by all processes first.
    saved = {save.opened or module.statement(save.call) for save in training.storage.saves if save.module is module}
    for written in training.storage.written:
        if written.module is not module or written.statement in saved or not _concerns(context, written.statement):
            continue
        spelled = training.ready(module, written.statement)
        trouble = _trouble(context, written)
        if spelled is not None and not trouble:
            guard = Guard(written.statement, f"{spelled}.is_main_process")
            yield change(CODE, written.statement, "one process writes the file", [guard], loop=training.index)
        else:
            why = trouble or "the Accelerator is not made yet, or not in reach"
            message = (
                f"every process writes this file, because {why}; have only the process whose "
                "accelerator.is_main_process is true write it"
            )
            yield change(CODE, written.statement, message, loop=training.index, safety=Safety.NOTE)
    yield from _commands(context)


def _commands(context: Context) -> Iterator[Change]:
    """One note for the commands of a file: whether what they do may be done N times is not visible to the analysis."""
    module, training = context.module, context.training
    found = [c for c in module.calls if runs_command(module, c) and _concerns(context, module.statement(c))]
    if found:
        more = ", ".join(str(line) for line in dict.fromkeys(call.lineno for call in found[1:]))
        message = (
            f"every process runs this command{f' (as in line {more})' if more else ''}; if it writes, have only the process "
            "whose accelerator.is_main_process is true run it, and after what it reads is written"
        )
        yield change(CODE, found[0], message, loop=training.index, safety=Safety.NOTE)


def _saves_model(context: Context, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "save_pretrained"
    ):
        return False
    prepared = context.training.timing.after_prepare(context.module, call)
    return prepared and context.training.holds(context.module.variable(call.func.value))


def _trouble(context: Context, written: Written) -> str:
    """Why the statement cannot simply go under a guard; empty if it can."""
    module = context.module
    if written.kept:
        return "what it opens is written to later, or its result is used"
    for node in walk(written.statement):
        if isinstance(node, ast.Call) and runs_model(context.script.roles, module, node):
            return "a model runs in it, which all processes must do together"
        if isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue):
            return "the flow of the script depends on it"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _read_later(context, written, node):
            return f"`{node.id}`, which is set in it, is read later"
    return ""


def _read_later(context: Context, written: Written, stored: ast.Name) -> bool:
    module, statement = context.module, written.statement
    inside = set(walk(statement))
    return any(
        isinstance(node, ast.Name)
        and node.id == stored.id
        and isinstance(node.ctx, ast.Load)
        and node not in inside
        and not _opened_anew(context, node)
        for node in walk(module.scope(statement).node)
    )


def _opened_anew(context: Context, name: ast.Name) -> bool:
    """Whether a `with` around a name gives it a value of its own."""
    return any(
        isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name.id
        for parent in context.module.ancestors(name)
        if isinstance(parent, ast.With)
        for item in parent.items
    )


def _concerns(context: Context, statement: ast.stmt) -> bool:
    """Whether the training runs it, and the author does not let one process do it already."""
    training, module = context.training, context.module
    function = module.scope(statement).function
    if function is not None and training.ready(module, statement) is None and function not in training.timing.late:
        if not is_called(context.script, training, function):
            return False
    if function is not None and not training.timing.after_prepare(module, statement):
        if any(downloads(module, node) for node in module.walk(function) if isinstance(node, ast.Call)):
            return False  # another rule speaks of the download as a whole
    if _saves_model(context, statement) or training.flow.only_main(module, statement):
        return False
    return not any(
        isinstance(parent, ast.If) and _names_one_process(parent.test) for parent in module.ancestors(statement)
    )


def _names_one_process(test: ast.expr) -> bool:
    return any(word in unparse(test) for word in ("rank", "main_process", "master"))


RULE = Rule(
    code=CODE,
    name="file_written",
    summary="write files on the main process only",
    why="Every process runs the script; N of them writing one file at once leave it torn, and tables get every row N times.",
    example_before='save_image(samples, "samples.png")',
    example_after='if accelerator.is_main_process:\n    save_image(samples, "samples.png")',
    find=find,
)
