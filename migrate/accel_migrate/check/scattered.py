"""What a wrapper took to its GPU by itself: once it goes, all that its model is fed must be on the device already."""

from __future__ import annotations

import ast

from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator
from accel_migrate.check.whereabouts import CPU, UNKNOWN, Whereabouts
from accel_migrate.flow.nodes import arguments_at, called_name, is_none, unparse
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

Key = tuple[object, str, str]  # the file, the function and the text of an expression
_LOOKS = frozenset(
    {"print", "isinstance", "hasattr", "getattr", "len", "id", "type", "str", "save", "watch", "deepcopy"}
)


def fed_from_the_cpu(evidence: Evidence) -> Found:
    """Calls of what was in a wrapper, or of something outside of the project with it, that get what nothing moved."""
    was = _parallel(evidence.before)
    side = evidence.after
    if not was or _wrappers(side):
        return
    where = side.once(Whereabouts)
    for file, call in side.calls:
        for given in _fed(side, file, call, was) if file in side.involved else ():
            function = file.scope(call).frame.node
            above = side.above(function) if isinstance(function, Function) else []
            entries: list[ast.Call | None] = [site.call for site in above] or [None]
            found = [where.of(file, given, entry) for entry in entries]
            if any(CPU in each for each in found):
                reason = "would be on the CPU: the wrapper of the model moved it, and nothing else does"
                yield file, call, f"`{unparse(given)[:40]}` of `{unparse(call)[:60]}` {reason}"
            elif any(UNKNOWN in each for each in found):
                reason = "may be on the CPU: nothing would move it as the wrapper of the model did"
                yield file, call, f"`{unparse(given)[:40]}` of `{unparse(call)[:60]}` {reason}"


def _parallel(side: Side) -> set[Key]:
    """The names under which the original has a wrapper that moves what it is called with."""
    wrappers = _wrappers(side)
    if not wrappers:
        return set()
    return {
        _key(file, node)
        for file in side.files
        for node in file.walk(file.tree, ast.Name, ast.Attribute)
        if isinstance(node.ctx, ast.Load)
        if any(made.node in wrappers and side.may_follow(file, node, made.node) for made in side.flows.made(file, node))
    }


def _wrappers(side: Side) -> set[ast.AST]:
    return {call for file, call in side.of_library("DataParallel") if takes_to_gpu(file, call)}


def takes_to_gpu(file: Module, call: ast.Call) -> bool:
    """Whether a wrapper moves what it is called with: DataParallel does, and DistributedDataParallel that is told a GPU."""
    name = (file.qualified(call.func) or "").rpartition(".")[2]
    told = any(not is_none(each) for each in arguments_at(call, 1, "device_ids"))
    return name == "DataParallel" or (name == "DistributedDataParallel" and told)


def _key(file: Module, node: ast.expr) -> Key:
    return file.path, file.scope(node).frame.path, unparse(node)


def _fed(side: Side, file: Module, call: ast.Call, was: set[Key]) -> list[ast.expr]:
    """What a model that was in such a wrapper gets from a call, or what is handed on together with it."""
    given = [*call.args, *[keyword.value for keyword in call.keywords]]
    if isinstance(call.func, ast.Name | ast.Attribute) and _key(file, call.func) in was:
        return given
    name = called_name(call)
    if side.flows.callees.get(call) or name in _LOOKS or _asks_accelerator(call):
        return []
    models = [part for part in given if isinstance(part, ast.Name | ast.Attribute) and _key(file, part) in was]
    return [part for part in given if part not in models] if models else []


def _asks_accelerator(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and is_accelerator(call.func.value)
