"""AM951: nothing that had a reader or a meaning before is left behind without one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.pair import Pair
from accel_migrate.effects import only_loads, only_reads
from accel_migrate.flow.definitions import Read, exported
from accel_migrate.flow.scopes import Scope, Variable
from accel_migrate.flow.version import Version

CODE = "AM951"


def find(project: Project) -> Iterator[Violation]:
    for file in project.changed:
        yield from _unread(project, file)
        yield from _empty(file)


def _unread(project: Project, file: Pair) -> Iterator[Violation]:
    """Variables, imports, parameters and functions whose last reader went."""
    before = {(variable.scope.path, variable.name) for variable in _read(file.before)}
    after = {(variable.scope.path, variable.name) for variable in _read(file.after)}
    lost = before - after
    if not lost:
        return
    if file.after.names.binds_unknown:
        return  # whoever binds by a name in a string may read by one
    handed_on = exported(file.after.tree)
    for scope in file.after.names.scopes:
        for name in scope.bindings:
            if (scope.path, name) not in lost or scope.is_class or name == "_":
                continue
            node = scope.bound(name)[-1]
            if (
                _must_stay(file.after, scope, node)
                or _is_tried(file.after, node)
                or _runs_on_import(project, file, node)
                or (scope.parent is None and (name in handed_on or _is_imported(project, file, name)))
            ):
                continue
            lost.discard((scope.path, name))
            message = f"{_kind(node)} `{name}` would be left without a reader, in `{file.after.code(node)}`"
            yield Violation(CODE, file.path, getattr(node, "lineno", 1), message)


def _read(program: Version) -> Iterator[Variable]:
    """Variables that somebody reads; what is only counted up is read by nobody."""
    for variable, reads in program.names.reads_of.items():
        if not all(_counts_up(read) for read in reads):
            yield variable


def _counts_up(read: Read) -> bool:
    return isinstance(read.statement, ast.AugAssign) and read.statement.target is read.node


def _must_stay(program: Version, scope: Scope, node: ast.AST) -> bool:
    """Whether a binding cannot go alone: one of several targets, of a loop, of a `with`, or by a caller's signature."""
    if isinstance(node, ast.Name):
        return not _stands_alone(program, node)
    if isinstance(node, ast.arg):
        function = scope.node
        if isinstance(function, ast.Lambda) or (scope.parent is not None and scope.parent.is_class):
            return True  # whoever calls it may call others by the same signature
        if any(read.name == node.arg for read in program.names.reads) or _has_default(function, node):
            return True  # one of the things that the script hands around, or an option that callers may leave out
        name = getattr(function, "name", "")
        return not any(
            isinstance(call.node.func, ast.Name) and call.node.func.id == name for call in program.names.calls
        )
    return not isinstance(node, ast.alias | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _is_tried(program: Version, node: ast.AST) -> bool:
    """Whether a binding stands in a `try`: what fails there and what is put in its place belong together."""
    return any(isinstance(above, ast.Try) for above in program.module.ancestors(node))


def _runs_on_import(project: Project, file: Pair, node: ast.AST) -> bool:
    """Whether an import may do more than to bind: a file that seeds, or that is not among those given."""
    files = [other.after.source for other in project.files]
    return isinstance(node, ast.alias) and any(
        node in statement.names and not only_loads(statement, files)
        for _, block in file.after.blocks
        for statement in block
        if isinstance(statement, ast.Import | ast.ImportFrom)
    )


def _has_default(function: ast.AST, node: ast.arg) -> bool:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    given = positional[len(positional) - len(arguments.defaults) :]
    named = [each for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults) if default is not None]
    return any(each is node for each in (*given, *named))


def _stands_alone(program: Version, node: ast.Name) -> bool:
    """Whether a name is the whole target of an assignment of a value that nothing but the name was made for."""
    for _, block in program.blocks:
        for statement in block:
            if isinstance(statement, ast.Assign) and any(target is node for target in statement.targets):
                return only_reads(statement.value)
            if isinstance(statement, ast.AnnAssign | ast.AugAssign) and statement.target is node:
                return statement.value is None or only_reads(statement.value)
    return False


def _is_imported(project: Project, file: Pair, name: str) -> bool:
    """Whether another file of the project may read it."""
    return any(name.encode() in other.after.source.data for other in project.files if other is not file)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.alias):
        return "the import"
    if isinstance(node, ast.arg):
        return "the parameter"
    return "the variable" if isinstance(node, ast.Name) else "the definition"


def _empty(file: Pair) -> Iterator[Violation]:
    """Blocks of `pass` alone, `x = x`, and branches that do the same whatever the test says."""
    known = Counter(what for what, _ in _meaningless(file.before))
    for what, node in _meaningless(file.after):
        if known[what]:
            known[what] -= 1
            continue
        message = f"{_EMPTY[what[0]]} would be left, in `{file.after.code(node)}`"
        yield Violation(CODE, file.path, getattr(node, "lineno", 1), message)


_EMPTY = {
    "pass": "a block that does nothing",
    "itself": "a name that is given to itself",
    "branches": "two branches that do the same",
}


def _meaningless(program: Version) -> Iterator[tuple[tuple[str, str], ast.AST]]:
    for holder, block in program.blocks:
        if _does_nothing(block) and not isinstance(holder, ast.ClassDef | ast.Module | ast.ExceptHandler):
            yield ("pass", type(holder).__name__), holder
        for statement in block:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                if _same(statement.targets[0], statement.value):
                    yield ("itself", ""), statement
            elif isinstance(statement, ast.If) and len(statement.body) == len(statement.orelse):
                if all(_same(one, other) for one, other in zip(statement.body, statement.orelse)):
                    yield ("branches", ""), statement


def _does_nothing(block: list[ast.stmt]) -> bool:
    """Only `pass`, with or without a docstring; `...` is what a person writes for a stub."""
    if not isinstance(block[-1], ast.Pass):
        return False
    return all(isinstance(each, ast.Pass) or _is_text(each) for each in block)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _same(one: ast.AST, other: ast.AST) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.Name) and isinstance(other, ast.Name):
        return one.id == other.id
    if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute):
        return one.attr == other.attr and _same(one.value, other.value)
    return ast.dump(one) == ast.dump(other)


CONDITION = Condition(
    code=CODE,
    name="nothing_orphaned",
    summary="a rewrite would leave something behind that nobody reads",
    why="A variable, an import, a parameter or a function that lost its last reader, a function of `pass` alone, `x = x` and "
    "two equal branches are what a careful person removes together with what they were for.",
    example_before="def setup(rank, world_size):\n    pass",
    example_after="",
    find=find,
)
