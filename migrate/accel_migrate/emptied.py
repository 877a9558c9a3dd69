"""What a rewrite left without a meaning: functions of `pass` alone with their calls, two branches that do the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accel_migrate.effects import only_reads
from accel_migrate.flow.definitions import Names
from accel_migrate.flow.scopes import Scope
from accel_migrate.flow.version import Version
from accel_migrate.plan import Change, Edit, Remove, Unwrap
from accel_migrate.source import Source

CODE = "AM107"


def emptied(before: Version, after: Version, others: Sequence[Source]) -> Iterator[Change]:
    """Changes of the original that take away what does nothing any more."""
    old, new = before.names, after.names
    for function in _functions(new):
        original = _function(old, function)
        if original is not None and _does_nothing(function) and not _does_nothing(original):
            if not any(original.name.encode() in other.data for other in others):
                yield from _without_function(old, new, original)
    yield from _given_to_themselves(before, after)
    yield from _branches(before, after)


def _branches(before: Version, after: Version) -> Iterator[Change]:
    """An `if` whose ways came to do the same. It is found by its test and by the way that nothing changed, if it has one."""
    asked = [s for s in _statements(before) if isinstance(s, ast.If) and not _is_pointless(s) and only_reads(s.test)]
    pointless = [s for s in _statements(after) if isinstance(s, ast.If) and _is_pointless(s)]
    found: dict[ast.If, None] = {}
    for branch in pointless:
        same = [s for s in asked if ast.dump(s.test) == ast.dump(branch.test)]
        alike = [s for s in same if _dumped(branch.body) in (_dumped(s.body), _dumped(s.orelse))]
        became = [s for s in pointless if _dumped([s]) == _dumped([branch])]
        if len(same) == 1 or len(alike) == len(became):
            found.update(dict.fromkeys(alike or same))
    for statement in found:
        message, column = "both branches do the same now", statement.col_offset + 1
        yield Change(CODE, statement.lineno, column, message, edits=(Unwrap(statement),), required=False)


def _dumped(block: list[ast.stmt]) -> list[str]:
    return [ast.dump(statement) for statement in block]


def _given_to_themselves(before: Version, after: Version) -> Iterator[Change]:
    """`x = f(x)` whose call went: the same binding of the same name, counted in its scope."""
    values, new = _values(before), _values(after)
    for statement in new.values():
        name = _itself(statement)
        if name is None:
            continue
        for scope in after.names.scopes:
            nodes = [node for node in scope.bound(name.id) if node in new]
            originals = [s.bound(name.id) for s in before.names.scopes if s.path == scope.path]
            olds = [node for found in originals for node in found if node in values]
            if name in nodes and len(originals) == 1 and len(olds) == len(nodes):
                original = values[olds[nodes.index(name)]]
                if _itself(original) is None:
                    message = f"{name.id} is what it was"
                    edits = (Remove(original),)
                    yield Change(CODE, original.lineno, original.col_offset + 1, message, edits=edits, required=False)


def _itself(statement: ast.stmt) -> ast.Name | None:
    """The name of `x = x`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id:
            return target
    return None


def _values(program: Version) -> dict[ast.AST, ast.Assign]:
    """The assignment of each name that is its only target."""
    assignments = (s for s in _statements(program) if isinstance(s, ast.Assign) and len(s.targets) == 1)
    return {statement.targets[0]: statement for statement in assignments}


def _statements(program: Version) -> Iterator[ast.stmt]:
    return (statement for _, block in program.blocks for statement in block)


def _functions(names: Names) -> Iterator[ast.FunctionDef]:
    """Functions of the module itself; what a method must be called, its class says."""
    return (s.node for s in names.scopes if s.parent is names.root and isinstance(s.node, ast.FunctionDef))


def _function(names: Names, like: ast.FunctionDef) -> ast.FunctionDef | None:
    found = [each for each in _functions(names) if each.name == like.name]
    return found[0] if len(found) == 1 and not found[0].decorator_list else None


def _does_nothing(function: ast.FunctionDef) -> bool:
    return isinstance(function.body[-1], ast.Pass) and all(
        isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in function.body
    )


def _without_function(old: Names, new: Names, function: ast.FunctionDef) -> Iterator[Change]:
    """The function and its calls go, when nobody does anything else with it than to call it."""
    called = _called(old, function)
    left = _called(new, function)
    reads = [read for read in new.reads if read.name == function.name]
    if left is None or called is None or len(reads) != len(left):
        return
    edits: list[Edit] = [Remove(function), *map(Remove, called)]
    message = f"{function.name}() does nothing any more"
    yield Change(CODE, function.lineno, function.col_offset + 1, message, edits=tuple(edits), required=False)


def _called(names: Names, function: ast.FunctionDef) -> list[ast.stmt] | None:
    """The statements that only call a function, with arguments that only read; None if a call does more."""
    found: list[ast.stmt] = []
    for call in names.calls:
        if (
            isinstance(call.node.func, ast.Name)
            and call.node.func.id == function.name
            and _means(names, call.scope, function)
        ):
            statement = call.statement
            if not isinstance(statement, ast.Expr) or statement.value is not call.node:
                return None
            arguments = [*call.node.args, *[keyword.value for keyword in call.node.keywords]]
            if not all(only_reads(argument) for argument in arguments):
                return None
            found.append(statement)
    return found


def _means(names: Names, scope: Scope, function: ast.FunctionDef) -> bool:
    variable = names.resolve(function.name, scope)
    return variable is not None and variable.scope is names.root


def _is_pointless(branch: ast.If) -> bool:
    """Whether both of its ways do the same, or it has one that does nothing and no other."""
    return len(branch.body) == len(branch.orelse) and _dumped(branch.body) == _dumped(branch.orelse)
