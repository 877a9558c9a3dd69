"""Edits by the statement that each belongs to, and the text with those that stay inside of one made."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from accel_migrate.items import settled
from accel_migrate.layout import edited, header
from accel_migrate.plan import Edit, Guard, Insert, Remove, Repeat, Replace, Substitute, Unimport, Unwrap, WorkOut
from accel_migrate.source import Source


class Sorted:
    """What becomes of each statement of a file. `touched` are those that change as a whole, or hold one that does."""

    def __init__(self, source: Source, edits: Iterable[Edit]) -> None:
        self.source = source
        self.removed: dict[ast.stmt, Remove] = {}
        self.substituted: dict[ast.stmt, Substitute] = {}
        self.unwrapped: set[ast.stmt] = set()
        self.guarded: dict[ast.stmt, tuple[str, ...]] = {}  # the empty blocks around it, inside out
        self.uncommented: dict[ast.stmt, int | None] = {}
        self.bare: set[ast.stmt] = set()  # without the comment behind them
        self.before: dict[ast.stmt, list[Insert]] = {}
        self.after: dict[ast.stmt, list[Insert]] = {}
        self.touched: set[ast.stmt] = set()
        self._replaced: dict[ast.stmt, list[Replace]] = {}
        self._parents: dict[ast.stmt, ast.stmt] = {}
        self._starts: dict[ast.stmt | None, list[int]] = {}
        self._note_parents(source.tree.body, None)
        for edit in settled(source, edits):
            if isinstance(edit, Replace):
                self._replaced.setdefault(self._owner(edit), []).append(edit)
            else:
                self._sort(edit)

    def replacements(self) -> list[Replace]:
        """What stays inside of statements, one replacement for each: statement by statement it is the same file."""
        found = []
        for statement in sorted(self._replaced, key=self.source.start):
            if self._goes(statement):
                continue
            start, code = self.source.start(statement), self.source.code(statement)
            if hasattr(statement, "body"):
                code = header(code)
            new = edited(code, start, self._replaced[statement], statement.col_offset)
            found.append(Replace(start, start + len(code), new))
        return found

    def written(self) -> list[str]:
        """The text of each new statement."""
        inserted = [insert for found in (*self.before.values(), *self.after.values()) for insert in found]
        edits: list[Insert | Substitute] = [*inserted, *self.substituted.values()]
        return [
            *[text for edit in edits for text in edit.statements],
            *[text for texts in self.guarded.values() for text in texts],
        ]

    def _goes(self, statement: ast.stmt | None) -> bool:
        """Whether a statement gives way, with what holds it: nothing of it is left to edit."""
        while statement is not None:
            if statement in self.removed or statement in self.substituted:
                return True
            statement = self._parents.get(statement)
        return False

    def _note_parents(self, statements: Iterable[ast.stmt], parent: ast.stmt | None) -> None:
        for statement in statements:
            if parent is not None:
                self._parents[statement] = parent
            inner = inner_statements(statement)
            if inner:
                self._note_parents(inner, statement)

    def _owner(self, edit: Replace) -> ast.stmt:
        """The statement whose own expressions, not those of its block, hold the edit."""
        statements: Sequence[ast.stmt] = self.source.tree.body
        found: ast.stmt | None = None
        while statements:
            if found not in self._starts:
                self._starts[found] = [self.source.start(statement) for statement in statements]
            index = bisect_right(self._starts[found], edit.start) - 1
            if index < 0 or edit.end > self.source.end(statements[index]):
                break
            found = statements[index]
            statements = inner_statements(found)
        if found is None:
            raise AssertionError(f"no statement holds the edit at offset {edit.start}")
        return found

    def _sort(self, edit: Edit) -> None:
        assert not isinstance(edit, Replace | Unimport | WorkOut)
        statement = edit.anchor if isinstance(edit, Insert) else edit.statement
        if isinstance(edit, Insert):
            (self.before if edit.where == "before" else self.after).setdefault(statement, []).append(edit)
        elif isinstance(edit, Remove):
            self.removed[statement] = edit
        elif isinstance(edit, Substitute):
            self.substituted[statement] = edit
        elif isinstance(edit, Unwrap):
            self.unwrapped.add(statement)
        elif isinstance(edit, Guard):
            around = [text for text in self.guarded.get(statement, ()) if not text.startswith("if ")]
            self.guarded[statement] = (under(f"if {edit.test}"), *around)
        elif isinstance(edit, Repeat):
            self.guarded[statement] = (*self.guarded.get(statement, ()), edit.text)
        elif edit.behind:
            self.bare.add(statement)
        else:
            self.uncommented[statement] = edit.lines
        holder: ast.stmt | None = statement
        while holder is not None and holder not in self.touched:
            self.touched.add(holder)
            holder = self._parents.get(holder)


def under(head: str) -> str:
    """A condition or a loop with an empty block."""
    return f"{head}:\n    pass"


def inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    """The statements of all blocks of a compound statement, in reading order; none for a simple one."""
    return [child for block in blocks(statement) for child in block]


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement, in reading order; none for a simple one."""
    if isinstance(statement, ast.Match):
        return [case.body for case in statement.cases]
    if not hasattr(statement, "body"):
        return []
    handlers = [handler.body for handler in getattr(statement, "handlers", ())]
    found = [statement.body, *handlers, getattr(statement, "orelse", []), getattr(statement, "finalbody", [])]
    return [block for block in found if block]
