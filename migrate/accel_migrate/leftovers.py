"""Imports, variables and functions whose last reader a rewrite took away: they go with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accel_migrate.effects import more_than_an_answer, only_loads, only_reads
from accel_migrate.flow.definitions import Names, exported
from accel_migrate.flow.scopes import Scope
from accel_migrate.flow.version import Version
from accel_migrate.plan import Change, Edit, Insert, Remove, Replace, Substitute, Unimport
from accel_migrate.source import Source

CODE = "AM104"
_BOUND = re.compile(r"\s*(\w+)\s*=")


def leftovers(before: Version, after: Version, others: Sequence[Source]) -> Iterator[Change]:
    """Changes of the original that take away what only the code that went had read."""
    old, new = before.names, after.names
    if new.binds_unknown:
        return  # whoever binds by a name in a string may read by one
    still = {(variable.scope.path, variable.name) for variable in new.reads_of}
    lost = {(variable.scope.path, variable.name) for variable in old.reads_of} - still
    if not lost:
        return
    handed_on = exported(after.tree)
    binders = dict(_binders(before))
    for path, name in sorted(lost):
        scope = _only(old, path)
        kept = _only(new, path)
        if scope is None or kept is None or scope.is_class or (scope is old.root and name in handed_on):
            continue
        if scope is old.root and _comes_by_star(before.source, name, others):
            continue
        nodes = scope.bound(name)
        if not nodes or len(nodes) != len(kept.bound(name)):
            continue  # gone already, or partly: then it is not a plain leftover
        gone = {other for where, other in lost if where == path}
        shared = others if scope is old.root else ()  # a local name is no business of other files
        edits = [_without(before, node, binders.get(node), gone, others, shared) for node in nodes]
        if all(edit is not None for edit in edits):
            first = nodes[0]
            line, column = getattr(first, "lineno", 1), getattr(first, "col_offset", 0) + 1
            message = f"nothing uses {name} any more"
            yield Change(CODE, line, column, message, edits=tuple(e for e in edits if e), required=False)


def _comes_by_star(source: Source, name: str, others: Sequence[Source]) -> bool:
    """Whether another file says `from engine import *` and gets a name of that file by it, such as `torch`."""
    star = re.compile(rf"^from [\w.]*\b{re.escape(source.path.stem)} import \*", re.MULTILINE)
    own = re.compile(rf"^(import {name}$|import .* as {name}$|from .* import .*\b{name}\b)", re.MULTILINE)
    reads = re.compile(rf"\b{name}\b")
    return any(star.search(o.text) and reads.search(o.text) and not own.search(o.text) for o in others)


def without_unread(changes: tuple[Change, ...], after: Version) -> tuple[Change, ...]:
    """The same changes without new statements that bind a name for nobody."""
    names = after.names
    read = {name.name for name in (*names.reads, *names.mentions)}
    return tuple(_pruned(change, read) for change in changes)


def _pruned(change: Change, read: set[str]) -> Change:
    edits = [_pruned_edit(edit, read) for edit in change.edits]
    return change if all(a is b for a, b in zip(edits, change.edits)) else replace(change, edits=tuple(edits))


def _pruned_edit(edit: Edit, read: set[str]) -> Edit:
    if not isinstance(edit, Insert | Substitute):
        return edit
    kept = tuple(text for text in edit.statements if not _binds_for_nobody(text, read))
    if kept == edit.statements or (isinstance(edit, Substitute) and not kept):
        return edit
    return replace(edit, statements=kept)


def _binds_for_nobody(text: str, read: set[str]) -> bool:
    bound = _BOUND.match(text)
    if bound is None or bound.group(1) in read:
        return False
    statement = ast.parse(text).body[0]
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    return len(statement.targets) == 1 and statement.targets[0].id not in read and only_reads(statement.value)


def _only(names: Names, path: str) -> Scope | None:
    """The one scope of this path; two functions of one name are left alone."""
    found = [scope for scope in names.scopes if scope.path == path]
    return found[0] if len(found) == 1 else None


def _binders(program: Version) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """The statement of every name that is imported, or is the target of an assignment or one of several."""
    for _, block in program.blocks:
        for statement in block:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield from ((alias, statement) for alias in statement.names)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                whole = statement.targets[0]
                yield from ((part, statement) for part in (whole.elts if isinstance(whole, ast.Tuple) else [whole]))
            elif isinstance(statement, ast.FunctionDef):
                yield statement, statement


def _without(
    program: Version,
    node: ast.AST,
    statement: ast.stmt | None,
    gone: set[str],
    others: Sequence[Source],
    shared: Sequence[Source],
) -> Edit | None:
    """The edit that takes a binding away; None when it cannot go, because it does more than bind this one name."""
    if statement is None or isinstance(program.holder_of[statement], ast.Try | ast.ExceptHandler | ast.ClassDef):
        return None
    source = program.source
    if isinstance(node, ast.alias) and isinstance(statement, ast.Import | ast.ImportFrom):
        # `import torch.distributed` also makes the module known to whoever names it in full.
        named_in_full = len(statement.names) == 1 and not node.asname and "." in node.name
        whole = all((alias.asname or alias.name) in gone for alias in statement.names)
        return None if named_in_full or (whole and not only_loads(statement, others)) else Unimport(statement, node)
    if isinstance(statement, ast.FunctionDef):
        named = any(re.search(rf"\b{statement.name}\b", other.text) for other in others)
        # One that knows of Apple's GPU alone chose the CPU where there is CUDA: whoever takes its call away must say so.
        acts = more_than_an_answer(statement, lambda call: []) is not None or "cuda" not in source.code(statement)
        return None if named or acts or statement.decorator_list else Remove(statement, keep_comments=False)
    if isinstance(node, ast.Name) and isinstance(statement, ast.Assign):
        if isinstance(parts := statement.targets[0], ast.Tuple):
            return _unnamed(program, node, parts, gone, shared)
        return (
            Remove(statement, keep_comments=not _closes_a_paragraph(source, statement))
            if only_reads(statement.value)
            else None
        )
    return None


def _unnamed(
    program: Version, node: ast.Name, parts: ast.Tuple, gone: set[str], others: Sequence[Source]
) -> Edit | None:
    """`device, _ = choose()`, where what stood beside the device is read no more."""
    kept = any(not isinstance(part, ast.Name) or part.id not in gone for part in parts.elts)
    named = any(re.search(rf"\b{node.id}\b", other.text) for other in others)
    underscored = any(name.name == "_" for name in (*program.names.reads, *program.names.mentions))
    return (
        Replace(program.source.start(node), program.source.end(node), "_") if kept and not named | underscored else None
    )


def _closes_a_paragraph(source: Source, statement: ast.stmt) -> bool:
    """Whether a comment right above speaks of this statement alone: nothing follows without a blank line."""
    end = source.text.find("\n", source.end(statement))
    following = source.text[end + 1 :].split("\n", 1)[0] if end >= 0 else ""
    return not following.strip()
