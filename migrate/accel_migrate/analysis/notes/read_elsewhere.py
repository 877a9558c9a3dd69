"""Files that are read where nothing waits for them: all processes wait behind what writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import may_run
from accel_migrate.analysis.notes.written_once import written_once
from accel_migrate.analysis.storage.read_back import readers
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.flow.scopes import Module

_Statement = tuple[Module, ast.stmt]
_Call = tuple[Module, ast.Call]


def waits_behind(script: Script, training: Training, module: Module) -> dict[ast.stmt, str]:
    """The statements of a file behind which all processes wait, each with the Accelerator there."""
    found: dict[ast.stmt, str] = {}
    for written in _written(script, training):
        for read in _not_waiting(script, training, *written):
            for owner, statement in _outermost(script, training, written, read):
                spelled = training.ready(owner, statement) if owner is module else None
                if spelled is not None and not training.flow.on_some(owner, statement):
                    found[statement] = spelled
    return found


def _written(script: Script, training: Training) -> list[_Statement]:
    files = training.modules
    others = [(module, statement) for module in files for statement in written_once(script, training, module)]
    return [*[(save.module, save.statement) for save in training.storage.saves], *others]


def _not_waiting(script: Script, training: Training, module: Module, written: ast.stmt) -> Iterator[_Call]:
    """What may read a file once objects are prepared, and has no wait in front of it.

    Of weights that is any `torch.load`: two names that are spelled differently may be one.
    """
    storage, function = training.storage, module.scope(written).function
    is_save = any(save.statement is written for save in storage.saves)
    loads = [load for load in storage.loads if is_save and load.call in storage.behind]
    waiting = {
        load.call for load in loads if storage.waits(load) and training.accelerator(load.module, load.call) is not None
    }
    others = [
        read for read in readers(script.graph, module, written) if read[0].scope(read[1]).function is not function
    ]
    for owner, call in dict.fromkeys([*[(load.module, load.call) for load in loads], *others]):
        if call not in waiting and training.timing.meets(owner, call) and not module.holds(written, call):
            if may_run(script, training, owner, call):
                yield owner, call


def _outermost(script: Script, training: Training, written: _Statement, read: _Call) -> Iterator[_Statement]:
    """A statement, or what runs it, as far outside as the Accelerator is in reach and the file is not yet read."""
    pending = [written]
    for module, statement in pending:
        above = module.parents[statement]
        while not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            if _runs(script, module, above, read):
                break
            statement = above if isinstance(above, ast.stmt) else statement
            above = module.parents[above]
        sites = script.graph.sites.get(above, ()) if isinstance(above, ast.FunctionDef) else ()
        callers = [(caller, caller.statement(call)) for caller, call in sites]
        if callers and all(
            training.ready(*caller) is not None and not _runs(script, *caller, read) for caller in callers
        ):
            pending += [caller for caller in callers if caller not in pending]
        elif not isinstance(statement, ast.Return | ast.Raise):
            yield module, statement


def _runs(script: Script, module: Module, node: ast.AST, read: _Call) -> bool:
    owner, call = read
    inside = owner is module and module.holds(node, call)
    return inside or owner.scope(call).function in script.graph.reached_from(node, module)
