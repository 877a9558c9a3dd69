"""Files that one process writes and the same function reads back on all: they wait until the file is there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.flow.file_calls import READERS, is_writing_mode, written_paths
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Function, Module

_Place = tuple[Function | None, str]  # a function, and a path as it is spelled there


def read_back(module: Module, written: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements behind some that write which read a file of theirs, where every process comes by.

    Of several without a write between them, the first: all have waited then.
    """
    lines: dict[_Place, int] = {}
    inside: set[ast.AST] = set()
    for statement in written:
        calls = module.walk(statement, ast.Call)
        inside.update(calls)
        for path in (path for call in calls for path in written_paths(call, module.qualified(call.func)) or ()):
            place = (module.scope(statement).function, _spelled(path))
            lines[place] = max(statement.lineno, lines.get(place, 0))
    waited: dict[Function | None, int] = {}
    for call in sorted(module.calls, key=lambda call: call.lineno):
        read = _path_read(module, call) if call not in inside else None
        function = module.scope(call).function
        line = lines.get((function, _spelled(read))) if read is not None else None
        if line is None or not waited.get(function, 0) < line < call.lineno or not _always_runs(module, call):
            continue
        waited[function] = call.lineno
        yield module.statement(call)


def _path_read(module: Module, call: ast.Call) -> ast.expr | None:
    function, dotted = call.func, module.qualified(call.func)
    if dotted in READERS:
        return call.args[0] if call.args else None
    if isinstance(function, ast.Attribute) and dotted is None and function.attr in ("read_text", "read_bytes"):
        return function.value
    if isinstance(function, ast.Name) and function.id == "open" and call.args:
        modes = [*call.args[1:2], *[keyword.value for keyword in call.keywords if keyword.arg == "mode"]]
        return call.args[0] if not any(is_writing_mode(mode) for mode in modes) else None
    return None


def _spelled(path: ast.expr) -> str:
    """The text of a path, without what makes a `Path` or a text of it."""
    match path:
        case ast.Call(func=ast.Name(id="Path" | "str"), args=[inner], keywords=[]):
            return _spelled(inner)
    return unparse(path)


def _always_runs(module: Module, call: ast.Call) -> bool:
    """Whether nothing on the way decides, other than loops and what runs the script: no process may wait alone."""
    for parent in module.ancestors(call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return True
        if isinstance(parent, ast.If) and not unparse(parent.test).startswith("__name__ =="):
            return False
        if isinstance(parent, ast.While | ast.Try | ast.IfExp | ast.BoolOp | ast.Lambda | ast.ClassDef):
            return False
    return True
