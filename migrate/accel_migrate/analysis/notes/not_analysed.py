"""Code outside of the files that were analysed: what every process does there nobody has read.

Silent where all that a training runs is code of the project, or of Python and the libraries that are known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.deeds import asks
from accel_migrate.analysis.notes.elsewhere import calls_of_callers, may_run
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.imported import brought_by
from accel_migrate.analysis.values.unread import Unseen, is_unseen
from accel_migrate.flow.nodes import calls_method, is_call_of, unparse
from accel_migrate.flow.scopes import Module

_WRITES = ("dump", "save", "write", "export", "store")


def not_analysed(script: Script, training: Training) -> Iterator[Unseen]:
    """Every imported name that is called, handed on or derived from, at its first use."""
    for module in run_by(script, training):
        told = set()
        for node in module.walk(module.tree, ast.Name):
            if node.id in told or not isinstance(node.ctx, ast.Load) or not is_unseen(script.project, module, node):
                continue
            *inner, whole = _chain(module, node)
            if any(not is_unseen(script.project, module, part) for part in (*inner, whole)):
                continue  # `parts` of `parts.nets.Net`, a folder without a file of its own
            if training.flow.only_main(module, node) or not may_run(script, training, module, node):
                continue
            if _runs(module, whole):
                told.add(node.id)
                yield Unseen(module, whole, f"{unparse(whole)}()")
        yield from _of_whoever_calls(script, training, module)


def _of_whoever_calls(script: Script, training: Training, module: Module) -> Iterator[Unseen]:
    """`settings.dump(folder)` of what a function is handed from outside the files: it may write."""
    for call in module.calls:
        owner = call.func.value if calls_method(call, *_WRITES) else None
        variable = module.variable(owner) if isinstance(owner, ast.Name) else None
        if variable is None or not module.is_parameter(variable) or len(module.bindings(variable)) > 1:
            continue
        known = variable.name == variable.scope.self_name or script.roles.of(variable)
        handed = known or script.graph.handed(variable) or not isinstance(module.parents[call], ast.Expr)
        if not handed and not training.flow.only_main(module, call) and may_run(script, training, module, call):
            yield Unseen(module, call, f"{unparse(call.func)}()")


def run_by(script: Script, training: Training) -> list[Module]:
    """The files that a training runs: its own, those that they import, and those that call it."""
    callers = [module for module, _ in calls_of_callers(script, training)]
    return list(dict.fromkeys([*training.modules, *brought_by(script.project, training.modules), *callers]))


def _chain(module: Module, name: ast.expr) -> Iterator[ast.expr]:
    """`drawing` and `drawing.save` of its `drawing`, the whole of it last."""
    yield name
    parent = module.parents[name]
    if isinstance(parent, ast.Attribute) and parent.value is name:
        yield from _chain(module, parent)


def _runs(module: Module, node: ast.expr) -> bool:
    """Whether it is called, handed to a call, or a class or function is made with it; not what is only read."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call) and asks(module, parent):
        return False  # AM607 speaks of it
    if isinstance(parent, ast.keyword):
        return isinstance(node, ast.Name)
    if isinstance(parent, ast.Call):
        asked = is_call_of(parent, "isinstance", "issubclass")
        raised = isinstance(module.parents[parent], ast.Raise)
        return not asked and not raised and (parent.func is node or isinstance(node, ast.Name))
    return isinstance(parent, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
