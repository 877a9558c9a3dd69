"""AM505: a folder that several processes make at once is made without a race."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import may_run
from accel_migrate.analysis.notes.renewed import Renewed, renewed
from accel_migrate.analysis.processes.own_names import own_part
from accel_migrate.edits import add_argument, change, note
from accel_migrate.flow.file_calls import MAKING_FOLDERS, folder_made
from accel_migrate.flow.nodes import is_falsy, unparse
from accel_migrate.plan import Change, Edit, Guard, Insert, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM505"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    again = [*renewed(context.script, training, module)]
    yield from _made_again(context, again)
    once = {call for one in again if one.whole for call in one.made}
    for call in module.calls_of(MAKING_FOLDERS):
        dotted = module.qualified(call.func)
        if folder_made(call, dotted) is None or call in once:
            continue
        own = list(_of_its_own(context, call, dotted))
        yield from own
        if _may_be_there(call):
            continue
        absent = _asked_for(context, call)
        by_name = dotted == "os.mkdir" and isinstance(call.func, ast.Name)  # makedirs() may not be imported
        # os.makedirs() would make parents, whose absence is caught here.
        caught = dotted == "os.mkdir" and any(isinstance(parent, ast.Try) for parent in module.ancestors(call))
        if absent and not by_name and not caught:
            if not may_run(context.script, training, module, call):
                continue
            message = "another process may make it between the question and the answer"
            yield change(context, CODE, call, message, _edits(context, call, dotted), required=False)
        elif not own and not training.flow.on_some(module, call) and may_run(context.script, training, module, call):
            yield from _made_by_one(context, call, under_question=absent is not None)


def _made_again(context: Context, again: list[Renewed]) -> Iterator[Change]:
    """A folder that the main process takes away is made again when it is gone."""
    for one in again:
        if not one.whole and not any(_may_be_made_by_all(context, call) for call in one.made):
            continue  # the main process makes it too, when it has taken it away
        spelled = context.training.ready(context.module, one.statement)
        edits: list[Edit] = [Guard(one.statement, f"{spelled}.is_main_process")] if one.whole else []
        edits.append(Insert(one.statement, (f"{spelled}.wait_for_everyone()",), "after"))
        reason = "one process takes the folder away and makes it, and the others wait for it"
        if not one.whole:
            reason = "the others wait until one process has taken the folder away"
        yield change(context, CODE, one.statement, reason, edits)


def _of_its_own(context: Context, call: ast.Call, dotted: str | None) -> Iterator[Change]:
    """A folder whose name comes from the clock: each process has another one, and writes or looks there."""
    module, training, script = context.module, context.training, context.script
    name = folder_made(call, dotted)
    if name is None or training.flow.on_some(module, call) or not may_run(context.script, training, module, call):
        return
    own = own_part(script.graph, module, name)
    if own is None:
        return
    owner, told = own
    if training.agrees and told in [own.told for own in training.own_names] and training.ready(module, call):
        return
    where = module.place_of(owner, told)
    message = (
        f"each process names this folder for itself, by `{unparse(told)}` ({where}), so that N processes may make several, "
        "and only the main process's holds what is saved; take the name from one process, or from an option"
    )
    must_be_new = not _may_be_there(call) and _asked_for(context, call) is None and not _is_tried(context, call)
    spelled = training.ready(module, call)
    # os.mkdir() has no exist_ok, and os.makedirs() would make parents whose absence is an error on one process.
    if must_be_new and spelled is not None and dotted != "os.mkdir":
        allowed = add_argument(module.source, call, f"exist_ok={spelled}.num_processes > 1")
        reason = "several processes may make the same folder; one process alone still fails where it is there"
        yield change(context, CODE, call, reason, [allowed], required=False)
    elif must_be_new:
        message += "; where two have the same name, all but the first may fail"
    yield note(context, CODE, call, message)


def _made_by_one(context: Context, call: ast.Call, under_question: bool) -> Iterator[Change]:
    """A folder that must not be there yet: the main process makes it, and the others wait."""
    training, module = context.training, context.module
    spelled, statement = training.ready(module, call), module.statement(call)
    alone = isinstance(statement, ast.Expr) and statement.value is call
    if _is_tried(context, call):
        return
    if spelled is None or not alone or under_question:
        message = (
            "every process makes this folder, and all but the first may fail; use os.makedirs(..., exist_ok=True), or make it "
            "on one process"
        )
        yield note(context, CODE, call, message)
        return
    edits: list[Edit] = [
        Guard(statement, f"{spelled}.is_main_process"),
        Insert(statement, (f"{spelled}.wait_for_everyone()",), "after"),
    ]
    yield change(context, CODE, call, "one process makes the folder, and the others wait for it", edits)


def _may_be_there(call: ast.Call) -> bool:
    """Whether the call says for itself what becomes of a folder that is there."""
    return len(call.args) > 2 or any(keyword.arg in ("exist_ok", None) for keyword in call.keywords)


def _may_be_made_by_all(context: Context, call: ast.Call) -> bool:
    return _may_be_there(call) or _asked_for(context, call) is not None or _is_tried(context, call)


def _is_tried(context: Context, call: ast.Call) -> bool:
    """Whether the author deals with a folder that is there; `except FileNotFoundError` alone is about its parents."""
    tries = [parent for parent in context.module.ancestors(call) if isinstance(parent, ast.Try)]
    caught = [unparse(handler.type) if handler.type is not None else "" for each in tries for handler in each.handlers]
    return bool(tries) and caught != ["FileNotFoundError"]


def _edits(context: Context, call: ast.Call, dotted: str | None) -> list[Edit]:
    source = context.module.source
    edits: list[Edit] = []
    if dotted == "os.mkdir":
        end = source.end(call.func)
        edits.append(Replace(end - len("mkdir"), end, "makedirs"))
    edits.append(add_argument(source, call, "exist_ok=True"))
    return edits


def _asked_for(context: Context, call: ast.Call) -> bool | None:
    """Whether the folder is made where `if not os.path.exists(folder):`, in any spelling, or where it is there.

    None where nothing asks. Processes ask at different times, so that none may wait for another under the question.
    """
    for choice, holds in context.module.branches(call):
        if isinstance(choice, ast.If) and _asks(choice.test):
            return holds == _is_negated(choice.test)
    return None


def _asks(test: ast.expr) -> bool:
    text = unparse(test)
    return any(word in text for word in ("exists(", "isdir(", "is_dir("))


def _is_negated(test: ast.expr) -> bool:
    """`not exists(x)`, `exists(x) is False`, `exists(x) == 0`, alone or with other conditions."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(_is_negated(value) for value in test.values if _asks(value))
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.Eq):
        other = test.comparators[0]
        return is_falsy(other) and _asks(test.left)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


RULE = Rule(
    code=CODE,
    summary="`exist_ok=True` where a folder is made if it is not there",
    why="Between `exists` and `makedirs` another process may have made the folder, and the second one fails. "
    "A folder that nothing asks for must be new: one process makes it, or, where its name comes from the clock, "
    "`exist_ok=accelerator.num_processes > 1` keeps the error on one process. Where the folder is taken away first, the "
    "processes wait until it is gone: one of them would else make it while another still removes it.",
    example_before="if not os.path.exists(out):\n    os.makedirs(out)",
    example_after="if not os.path.exists(out):\n    os.makedirs(out, exist_ok=True)",
    find=find,
)
