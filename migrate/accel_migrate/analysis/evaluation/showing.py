"""Functions of the project that only show: bars and lines of meters, which leave nothing behind but what they wrote."""

from __future__ import annotations

import ast
from dataclasses import replace

from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import called_name, own_parameters, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first

CLOCKS = {"time.time", "time.perf_counter", "time.monotonic", "time.process_time", "timeit.default_timer"}
STREAMS = {"sys.stdout.write", "sys.stdout.flush", "sys.stderr.write", "sys.stderr.flush", "tqdm.tqdm.write"}
# What may be called for the sake of a text: nothing that is left behind by it.
READS = {
    "format", "item", "size", "cpu", "numpy", "tolist", "join", "float", "int", "str", "len", "round", "mean", "sum", "max",
    "min", "detach", "keys", "items", "values", "range", "zip", "strftime", "get_last_lr", "ljust", "rjust", "dict", "list",
    "enumerate", "isinstance", "global_avg", "OrderedDict",
}  # fmt: skip
_OWN = {"append", "extend", "insert"}


def only_shows(roles: Roles, module: Module, call: ast.Call, depth: int = 0) -> bool:
    """Whether a call runs a function of the project that does no more than write to the terminal."""
    target = roles.target(module, call)
    return target is not None and depth < 3 and _shows(roles, target, depth)


def makes_display(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call makes an object of the project whose every method only shows: `ProgressMeter(len(loader), ...)`."""
    target = roles.target(module, call)
    if target is None or not isinstance(target.node, ast.ClassDef):
        return False
    methods = [part for part in target.node.body if isinstance(part, ast.FunctionDef) and part.name != "__init__"]
    shown = [_shows(roles, replace(target, node=method), 0) for method in methods]
    return bool(methods) and all(shown)


def _shows(roles: Roles, target: Definition, depth: int) -> bool:
    node = target.node
    if isinstance(node, ast.ClassDef):
        return False
    given = {a.arg for a in own_parameters(node)}
    bound = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - given
    kept = {name for n in walk(node) if isinstance(n, ast.Global) for name in n.names}
    if isinstance(node, ast.AsyncFunctionDef) or any(_is_read_elsewhere(roles, target, name) for name in kept):
        return False
    for part in (part for statement in node.body for part in walk(statement)):
        if isinstance(part, ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Delete | ast.Await | ast.Import | ast.Raise):
            return False
        stored = isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(part.ctx, ast.Load)
        if stored and _root(part) not in bound - kept:
            return False
        if isinstance(part, ast.Call) and not _is_harmless(roles, target.module, part, bound - kept, depth):
            return False
    return True


def writes(module: Module, call: ast.Call) -> bool:
    """`print(...)`, `sys.stdout.write(...)`; nothing that goes into a file."""
    if isinstance(call.func, ast.Name):
        files = [keyword.value for keyword in call.keywords if keyword.arg == "file"]
        terminal = all(module.full_name(file) in ("sys.stdout", "sys.stderr") for file in files)
        return call.func.id == "print" and module.variable(call.func) is None and terminal
    return module.full_name(call.func) in STREAMS


def _is_harmless(roles: Roles, module: Module, call: ast.Call, own: set[str], depth: int) -> bool:
    if writes(module, call) or module.full_name(call.func) in CLOCKS:
        return True
    if only_shows(roles, module, call, depth + 1):
        return True
    name = called_name(call)
    if name in _OWN and isinstance(call.func, ast.Attribute):
        return _root(call.func) in own
    return name in READS and roles.target(module, call) is None


def _is_read_elsewhere(roles: Roles, target: Definition, name: str) -> bool:
    """Whether a global that a function sets is read by anything but it, and what runs before it is there."""
    for module in roles.project.modules:
        for node in module.walk(module.tree, ast.Name, ast.Attribute, ast.alias):
            named = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            if named != name or (module is target.module and module.holds(target.node, node)):
                continue
            earlier = comes_first(module, node, target.node)
            if module is not target.module or not (earlier or isinstance(getattr(node, "ctx", None), ast.Store)):
                return True
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
