"""AM604: data that every process downloads at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import calls_of_callers, calls_on_import
from accel_migrate.analysis.notes.written_once import written_once
from accel_migrate.analysis.storage.files import downloads, downloads_in
from accel_migrate.edits import note
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM604"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    once = [node for s in written_once(context.script, training, module) for node in module.walk(s, ast.Call)]
    own = [call for call in downloads_in(module) if call not in once]
    for call in own or _through_helpers(context):
        if not training.flow.on_some(module, call):
            yield _note(context, call, "")
            return
    if training.place.module is module:
        run = [*calls_on_import(context.script, training), *calls_of_callers(context.script, training)]
        for owner, call in run:
            if downloads(owner, call) and not training.flow.on_some(owner, call):
                yield _note(context, training.place.after, f" ({owner.source.path.name}:{call.lineno})")
                return


def _note(context: Context, node: ast.AST, where: str) -> Change:
    message = (
        f"every process looks for the data and downloads what is missing{where}, into one folder; have it there before the "
        "first run on several processes, for instance by a run on one"
    )
    return note(context, CODE, node, message)


def _through_helpers(context: Context) -> Iterator[ast.Call]:
    """Calls that lead to a download in a file of the project which the training does not change."""
    module, sites = context.module, context.script.graph.all_sites
    others = [other for other in context.script.project.modules if other not in context.training.modules]
    pending = [other.scope(call).function for other in others for call in downloads_in(other)]
    seen: set[ast.AST | None] = {None}
    for function in pending:
        if function is None or function in seen:
            continue
        seen.add(function)
        pending += _run_when_made(function, others)
        for caller, call in sites.get(function, ()):
            if caller is module:
                yield call
            elif caller in others:
                pending.append(caller.scope(call).function)


def _run_when_made(function: Function, modules: list[Module]) -> list[Function]:
    """`download()` of a dataset for graphs is called by the class that it is derived from, when the dataset is made."""
    if function.name not in ("download", "process"):
        return []
    owners = [module.parents[function] for module in modules if function in module.functions]
    body = [
        statement for owner in owners if isinstance(owner, ast.ClassDef) and owner.bases for statement in owner.body
    ]
    return [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]


RULE = Rule(
    code=CODE,
    summary="data that every process downloads",
    why="Processes that unpack the same archive into the same folder at once read each other's half-written files.",
    example_before='data = MNIST("data", download=True)',
    find=find,
    safety=Safety.NOTE,
)
