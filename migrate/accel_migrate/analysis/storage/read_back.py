"""Files that a script writes and reads: where one process writes, and the same function reads on all, they wait."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.sources import contents
from accel_migrate.flow.file_calls import READERS, as_saved, is_writing_mode, written_paths
from accel_migrate.flow.nodes import all_arguments, arguments_at, unparse
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import follows


def read_back(module: Module, written: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements behind some that write which read a file of theirs, where every process comes by.

    Of several without a write between them, the first: all have waited then.
    """
    writes: dict[str, list[ast.stmt]] = {}
    inside: set[ast.AST] = set()
    for statement in written:
        calls = module.walk(statement, ast.Call)
        inside.update(calls)
        for call, dotted in ((call, module.qualified(call.func)) for call in calls):
            for path in written_paths(call, dotted) or ():
                writes.setdefault(as_saved(_spelled(module, path), dotted), []).append(statement)
    waited: list[ast.Call] = []
    for call in module.calls:
        read = _path_read(module, call) if call not in inside else None
        handed = [read] if read is not None else _handed_out(module, call) if call not in inside else []
        spelled = [_spelled(module, path) for path in handed]
        before = [each for path in spelled for each in writes.get(path, ()) if follows(module, each, call)]
        met = [each for each in waited if follows(module, each, call)]
        if all(any(follows(module, each, wait) for wait in met) for each in before):
            continue
        if not always_runs(module, call, before):
            continue
        waited.append(call)
        yield module.statement(call)


_TORCH = ("torch", "torchvision", "numpy")
_READING = READERS | {"torch.load", ".read_text", ".read_bytes", "open"}


def readers(graph: CallGraph, module: Module, written: ast.stmt) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that read a file which a statement writes, wherever they are, as far as their paths are one text or one name."""
    calls = [(call, module.qualified(call.func)) for call in module.walk(written, ast.Call)]
    paths = [path for call, dotted in calls for path in written_paths(call, dotted) or ()]
    names = {name for path in paths for name in known_as(graph, module, path)}
    for file in graph.roles.project.modules if names else ():
        for call in file.calls_of(_READING):
            loads = file.qualified(call.func) == "torch.load" and call.args
            path = call.args[0] if loads else _path_read(file, call)
            if path is not None and not module.holds(written, call):
                if not names.isdisjoint(known_as(graph, file, path)):
                    yield file, call


def known_as(graph: CallGraph, module: Module, path: ast.expr) -> set[str | Variable]:
    """All that a path is known as: the variables that it goes through, or the text of what is in them."""
    return {file.variable(part) or _spelled(file, part) for file, part in contents(graph, module, _bare(path))}


def _path_read(module: Module, call: ast.Call) -> ast.expr | None:
    function, dotted = call.func, module.qualified(call.func)
    if dotted in READERS:
        return call.args[0] if call.args else None
    if isinstance(function, ast.Attribute) and dotted is None and function.attr in ("read_text", "read_bytes"):
        return function.value
    if isinstance(function, ast.Name) and function.id == "open" and call.args:
        return call.args[0] if not any(map(is_writing_mode, arguments_at(call, 1, "mode"))) else None
    return None


def _handed_out(module: Module, call: ast.Call) -> list[ast.expr]:
    """The names that a function gets which was imported, and whose file is not read here: it may read what they name."""
    dotted = module.qualified(call.func)
    root = (dotted or "").partition(".")[0]
    if not isinstance(call.func, ast.Name) or dotted is None or root in sys.stdlib_module_names or root in _TORCH:
        return []
    return [each for each in all_arguments(call) if isinstance(each, ast.Name)]


def _spelled(module: Module, path: ast.expr) -> str:
    """The text that a path is put together to, with what is not written out in it as it is read."""
    path = _bare(path)
    match path:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_spelled(module, part) for part in parts)
        case ast.FormattedValue(value=part, conversion=-1, format_spec=None):
            return _spelled(module, part)
        case ast.BinOp(op=ast.Add() | ast.Div() as joined, left=left, right=right):
            between = "/" if isinstance(joined, ast.Div) else ""
            return f"{_spelled(module, left)}{between}{_spelled(module, right)}"
        case ast.Call(func=called, args=parts) if module.qualified(called) == "os.path.join":
            return "/".join(_spelled(module, part) for part in parts)
        case ast.Name() if isinstance(value := module.only_value(path), ast.Constant):
            return _spelled(module, value)
    return f"<{unparse(path)}>"


def _bare(path: ast.expr) -> ast.expr:
    """A path without what makes a `Path` or a text of it."""
    match path:
        case ast.Call(func=ast.Name(id="Path" | "str"), args=[inner], keywords=[]):
            return _bare(inner)
    return path


def always_runs(module: Module, call: ast.Call, written: Sequence[ast.stmt] = ()) -> bool:
    """Whether nothing on the way decides, other than loops and what runs the script, and what decided on what is `written`.

    No process may wait alone.
    """
    for parent in module.ancestors(call):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return True
        if isinstance(parent, ast.If) and not unparse(parent.test).startswith("__name__ =="):
            if not any(module.holds(parent, each) for each in written):
                return False
        if isinstance(parent, ast.While | ast.Try | ast.IfExp | ast.BoolOp | ast.Lambda | ast.ClassDef):
            return False
    return True
