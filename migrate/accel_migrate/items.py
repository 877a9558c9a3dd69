"""Items of a list in the code, arguments or names of an import: those that go take one comma with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accel_migrate.flow.nodes import walk
from accel_migrate.layout import splice
from accel_migrate.plan import Edit, Guard, Insert, Remove, Replace, Unimport, WorkOut
from accel_migrate.source import Source

Item = ast.expr | ast.keyword | ast.arg | ast.alias


def without_item(source: Source, first: Item, last: Item | None = None) -> Replace:
    """An argument, parameter or entry goes, with one comma and, if it had a line for itself, with that line."""
    text = source.text
    start, end = source.start(first), source.end(last or first)
    after = re.compile(r"\s*,").match(text, end)
    line_start = text.rfind("\n", 0, start) + 1
    if after is not None:
        end = after.end()
        line_end = text.find("\n", end)
        if not text[line_start:start].strip() and line_end >= 0 and not text[end:line_end].strip():
            return Replace(line_start, line_end + 1, "")
        space = re.compile(r"[ \t]*").match(text, end)
        return Replace(start, space.end() if space is not None else end, "")
    before = re.compile(r",\s*$").search(text, 0, start)
    return Replace(before.start() if before is not None else start, end, "")


def without_items(source: Source, items: Iterable[tuple[Item, Item]]) -> list[Edit]:
    """`without_item` for several, each from its first to its last part: neighbours go together, as one edit."""
    runs: list[tuple[Item, Item]] = []
    for first, last in sorted(items, key=lambda item: source.start(item[0])):
        if runs and re.fullmatch(r"\s*,\s*", source.text[source.end(runs[-1][1]) : source.start(first)]):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return [without_item(source, first, last) for first, last in runs]


def settled(source: Source, edits: Iterable[Edit]) -> list[Edit]:
    """The edits, with one for each import statement that names go from, and one for two conditions that come together."""
    return _with_joined_guards(source, _worked_out(source, [*_without_imports(source, edits)]))


def _without_imports(source: Source, edits: Iterable[Edit]) -> Iterator[Edit]:
    """Several changes may take some of the names of an import each."""
    gone: dict[ast.Import | ast.ImportFrom, list[ast.alias]] = {}
    for edit in dict.fromkeys(edits):
        if isinstance(edit, Unimport):
            gone.setdefault(edit.statement, []).append(edit.name)
        else:
            yield edit
    for statement, names in gone.items():
        if len(names) == len(statement.names):
            yield Remove(statement)
        else:
            yield from without_items(source, [(name, name) for name in names])


def _worked_out(source: Source, edits: list[Edit]) -> list[Edit]:
    """`taken = kept.pop()` above the statement, and `taken` in it; other edits of the expression go with it."""
    for lifted in [edit for edit in edits if isinstance(edit, WorkOut)]:
        start, end = source.start(lifted.expression), source.end(lifted.expression)
        inner = [e for e in edits if isinstance(e, Replace) and start <= e.start < end and e.end <= end]
        text = splice(source.code(lifted.expression), start, inner)
        edits = [edit for edit in edits if edit is not lifted and edit not in inner]
        edits += [Insert(lifted.statement, (f"{lifted.name} = {text}",), "before"), Replace(start, end, lifted.name)]
    return edits


def _with_joined_guards(source: Source, edits: list[Edit]) -> list[Edit]:
    """`if best and main: save()` in the place of one `if` in another, where nothing else stands in the outer one."""
    guards = {edit.statement: edit for edit in edits if isinstance(edit, Guard)}
    beside = {edit.anchor for edit in edits if isinstance(edit, Insert)}
    for around in walk(source.tree) if guards else ():
        if not isinstance(around, ast.If) or around.orelse or not beside.isdisjoint(around.body):
            continue
        if source.text.startswith("elif", source.start(around)):
            continue
        tests = {guards[inner].test if inner in guards else None for inner in around.body}
        if len(tests) != 1 or None in tests:
            continue
        start, end = source.start(around.test), source.end(around.test)
        bare = isinstance(around.test, ast.BoolOp) and isinstance(around.test.op, ast.And)
        if not bare and isinstance(around.test, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr):
            edits += [Replace(start, start, "("), Replace(end, end, ")")]
        edits.append(Replace(end, end, f" and {tests.pop()}"))
        edits = [edit for edit in edits if not (isinstance(edit, Guard) and edit.statement in around.body)]
    return edits
