"""Folders that are taken away and made again: one process takes them away, so no other may make them before that is done."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.notes.written_once import written_once
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.flow.file_calls import ASKING, MAKING_FOLDERS, folder_made, taken_away
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import follows

_TALKS = frozenset({"print", "info", "warning", "debug", "join", "format", "str", "Path", "suppress"})


@dataclass(frozen=True, eq=False)
class Renewed:
    """What takes a folder away, with the question and the `try` around it, and the calls that make it again."""

    statement: ast.stmt
    made: tuple[ast.Call, ...]
    whole: bool  # the folder is made in the same statement, which does nothing else


def renewed(script: Script, training: Training, module: Module) -> Iterator[Renewed]:
    """The folders of a file that the main process takes away, and that every process would make again."""
    makes = [
        (call, made)
        for call in module.calls_of(MAKING_FOLDERS)
        if (made := folder_made(call, module.qualified(call.func)))
    ]
    for statement in written_once(script, training, module) if makes else ():
        for call in module.walk(statement, ast.Call):
            gone = taken_away(call, module.qualified(call.func)) if isinstance(call, ast.Call) else None
            if gone is None:
                continue
            around = _around(module, statement)
            again = [make for make, made in makes if follows(module, around, make) and _is_in(made, gone)]
            inside = [make for make in again if module.holds(around, make)]
            whole = bool(inside) and all(_is_of_files(module, node) for node in module.walk(around, ast.Call))
            if again and (whole or not inside):
                yield Renewed(around, tuple(inside if whole else again), whole)


def _around(module: Module, statement: ast.stmt) -> ast.stmt:
    """The outermost statement that asks for the folder, or deals with its absence: processes do not part behind it."""
    for parent in module.ancestors(statement):
        asks = isinstance(parent, ast.If) and any(_asks(node) for node in module.walk(parent.test, ast.Call))
        spares = isinstance(parent, ast.With) and "suppress" in unparse(parent.items[0].context_expr)
        if not (asks or spares or isinstance(parent, ast.Try | ast.ExceptHandler)):
            break
        if isinstance(parent, ast.stmt):
            statement = parent
    return statement


def _is_in(made: ast.expr, gone: ast.expr) -> bool:
    """Whether a folder is made under the name of what is gone, or below it."""
    match gone:
        case ast.Constant(value=str(folder)):
            texts = [part.value for part in ast.walk(made) if isinstance(part, ast.Constant)]
            return any(isinstance(text, str) and f"{text}/".startswith(f"{folder.rstrip('/')}/") for text in texts)
    return unparse(gone) in (unparse(part) for part in ast.walk(made) if isinstance(part, ast.expr))


def _is_of_files(module: Module, node: ast.AST) -> bool:
    """Whether a call asks for files and folders, makes them, takes them away, or says so."""
    if not isinstance(node, ast.Call):
        return True
    dotted = module.qualified(node.func)
    return _asks(node) or called_name(node) in _TALKS or bool(folder_made(node, dotted) or taken_away(node, dotted))


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in ASKING
