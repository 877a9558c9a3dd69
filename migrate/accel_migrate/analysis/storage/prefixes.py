"""Keys that begin with `module.`: what a wrapper writes into files, and what of a project counts on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.program.scopes import Module
from accel_migrate.analysis.storage.states import is_same
from accel_migrate.analysis.storage.storage import Storage
from accel_migrate.flow.nodes import unparse

_PREFIX = "module."


def writes_prefix(distribution: Distribution, storage: Storage) -> bool:
    """Whether the script saved a wrapped model with the wrapper's keys."""
    return bool(distribution.wrappings) and any(_through_wrapper(one.call) for one in storage.taken)


def loads_of_old_files(distribution: Distribution, storage: Storage, module: Module) -> Iterator[ast.Call]:
    """`model.load_state_dict(...)` on what was a wrapper: files of the time before have its keys."""
    wrapped = [w.call.lineno for w in distribution.wrappings if w.module is module]
    for call in module.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
            continue
        owner = call.func.value
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            continue
        below = (
            not wrapped
            or call.lineno > min(wrapped)
            or module.scope(call).function is not _function(distribution, module)
        )
        if below and is_same(module, owner, storage.models):
            yield call


def counts_on_prefix(module: Module) -> Iterator[ast.expr]:
    """Expressions that add, cut off or ask for the prefix, and mean something else once it is not there."""
    for node in module.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="startswith"), args=[first, *_]):
                found = _is_prefix(first)
            case ast.BinOp(left=first, op=ast.Add()) | ast.JoinedStr(values=[first, *_]):
                found = _is_prefix(first)
            case ast.Subscript(slice=ast.Slice() as cut):
                found = _cuts_prefix(module, cut)
            case _:
                continue
        if found:
            assert isinstance(node, ast.expr)
            yield node


def _function(distribution: Distribution, module: Module) -> ast.AST | None:
    call = next(w.call for w in distribution.wrappings if w.module is module)
    return module.scope(call).function


def _through_wrapper(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name | ast.Attribute) and getattr(owner, "attr", "") != "module"


def _is_prefix(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (_PREFIX, "module")


def _cuts_prefix(module: Module, cut: ast.Slice) -> bool:
    """`key[7:]` or `key[len("module."):]`, unless the key was asked first."""
    lower = cut.lower
    if cut.upper is not None or lower is None:
        return False
    if isinstance(lower, ast.Call) and unparse(lower.func) == "len" and lower.args and _is_prefix(lower.args[0]):
        return not _asked(module, cut)
    return isinstance(lower, ast.Constant) and lower.value == len(_PREFIX) and _of_states(module, cut)


def _asked(module: Module, node: ast.AST) -> bool:
    return any(
        isinstance(parent, ast.If | ast.IfExp) and "startswith" in unparse(parent.test)
        for parent in module.ancestors(node)
    )


def _of_states(module: Module, node: ast.AST) -> bool:
    """Whether it stands in a loop over the items of a mapping, and no question for the prefix is around it."""
    loops = [
        parent.iter if isinstance(parent, ast.For) else parent.generators[0].iter
        for parent in module.ancestors(node)
        if isinstance(parent, ast.For | ast.DictComp)
    ]
    return any(".items()" in unparse(one) or ".keys()" in unparse(one) for one in loops) and not _asked(module, node)
