"""Puts edits into a file: statements are moved in the libcst tree, expressions are spliced inside their statement.

Code that no edit names is never printed anew: its nodes stay the parser's own, comments and white space included.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

import libcst as cst

from accel_migrate.effects import only_reads
from accel_migrate.errors import SourceError
from accel_migrate.layout import edited, header
from accel_migrate.plan import Edit, Guard, Insert, Remove, Replace, Substitute, Unwrap
from accel_migrate.source import Source

# Characters that libcst may not keep; without them its round trip is exact and need not be tried.
_UNUSUAL = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x85\u2028\u2029]|\r(?!\n)")

# libcst loses empty lines before a last line of blanks; nothing is ever edited there.
_BLANK_TAIL = re.compile(r"(?<=\n)[ \t\r\n]*[ \t][ \t\r\n]*\Z")

KEPT_COMMENT = "# %%accel:"  # marks the cells of a notebook; never lost

_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_Suite = TypeVar("_Suite", bound=cst.BaseSuite)


def apply(source: Source, edits: Iterable[Edit]) -> str:
    """The text of the file with all edits made."""
    try:
        end = _BLANK_TAIL.search(source.text)
        tail = end.group() if end is not None else ""
        text = source.text.removesuffix(tail)
        module = cst.parse_module(text)
        if _UNUSUAL.search(text) and module.code != text:
            raise SourceError("holds characters that cannot be kept byte for byte (a form feed or a lone CR)")
        return _Applier(source, module, edits).result() + tail
    except cst.ParserSyntaxError as error:
        raise SourceError(f"is not Python that libcst can parse: {error.message}", error.raw_line) from error
    except RecursionError as error:
        raise SourceError("is nested too deeply to rewrite") from error


class _Applier:
    def __init__(self, source: Source, module: cst.Module, edits: Iterable[Edit]) -> None:
        self.source = source
        self.module = module
        self.removed: dict[ast.stmt, Remove] = {}
        self.substituted: dict[ast.stmt, Substitute] = {}
        self.unwrapped: set[ast.stmt] = set()
        self.guarded: dict[ast.stmt, str] = {}
        self.uncommented: set[ast.stmt] = set()
        self.before: dict[ast.stmt, list[Insert]] = {}
        self.after: dict[ast.stmt, list[Insert]] = {}
        self.replaced: dict[ast.stmt, list[Replace]] = {}
        self.touched: set[ast.stmt] = set()
        self._parents: dict[ast.stmt, ast.stmt] = {}
        self._note_parents(source.tree.body, None)
        self._headers = _StatementIndex(source)
        for edit in dict.fromkeys(edits):
            self._sort(edit)

    def result(self) -> str:
        body = self._body(self.source.tree.body, self.module.body, "")
        return self.module.with_changes(body=body).code

    # ---- which statement each edit belongs to

    def _note_parents(self, statements: Iterable[ast.stmt], parent: ast.stmt | None) -> None:
        for statement in statements:
            if parent is not None:
                self._parents[statement] = parent
            self._note_parents(inner_statements(statement), statement)

    def _sort(self, edit: Edit) -> None:
        if isinstance(edit, Replace):
            statement = self._headers.owner(edit.start, edit.end)
            self.replaced.setdefault(statement, []).append(edit)
        elif isinstance(edit, Insert):
            statement = edit.anchor
            (self.before if edit.where == "before" else self.after).setdefault(statement, []).append(edit)
        else:
            statement = edit.statement
            if isinstance(edit, Remove):
                self.removed[statement] = edit
            elif isinstance(edit, Substitute):
                self.substituted[statement] = edit
            elif isinstance(edit, Unwrap):
                self.unwrapped.add(statement)
            elif isinstance(edit, Guard):
                self.guarded[statement] = edit.test
            else:
                self.uncommented.add(statement)
        holder: ast.stmt | None = statement
        while holder is not None and holder not in self.touched:
            self.touched.add(holder)
            holder = self._parents.get(holder)

    # ---- blocks

    def _body(
        self, statements: Sequence[ast.stmt], nodes: Sequence[cst.BaseStatement], indent: str
    ) -> list[cst.BaseStatement]:
        """The new statements of one block."""
        result: list[cst.BaseStatement] = []
        carried: list[cst.EmptyLine] | None = None  # what a removed statement leaves to the next one
        position = 0
        for node in nodes:
            count = len(node.body) if isinstance(node, cst.SimpleStatementLine) else 1
            mine = statements[position : position + count]
            position += count
            if not any(statement in self.touched for statement in mine):
                new: list[cst.BaseStatement] = [node]
            elif isinstance(node, cst.SimpleStatementLine):
                new = self._line(mine, node, indent)
            else:
                new = self._compound(mine[0], node, indent)
            if not new:
                lost = self._left_behind(mine[0], node)
                carried = _merged(carried, lost, first=not result) if carried is not None else lost
                continue
            if carried is not None:
                new[0] = _with_leading(new[0], _merged(carried, _leading(new[0]), first=not result))
                carried = None
            if result and len(new) == 1 and self._same_guard(statements, mine[0]):
                result[-1] = _under_one_guard(result[-1], new[0])
            else:
                result += new
        self._footer = [line for line in carried or [] if line.comment is not None]
        return result

    def _same_guard(self, statements: Sequence[ast.stmt], statement: ast.stmt) -> bool:
        """Whether a statement comes under the same guard as the one right above it."""
        index = next(i for i, item in enumerate(statements) if item is statement)
        test = self.guarded.get(statement)
        return test is not None and index > 0 and self.guarded.get(statements[index - 1]) == test

    def _left_behind(self, statement: ast.stmt, node: cst.BaseStatement) -> list[cst.EmptyLine]:
        lines = _leading(node)
        keep = self.removed[statement].keep_comments if statement in self.removed else True
        if not keep:
            lines = _without_last_comment(lines)
        return lines

    def _line(
        self, statements: Sequence[ast.stmt], node: cst.SimpleStatementLine, indent: str
    ) -> list[cst.BaseStatement]:
        small: list[cst.BaseSmallStatement] = []
        before: list[cst.BaseStatement] = []
        after: list[cst.BaseStatement] = []
        for statement, part in zip(statements, node.body):
            before += self._inserted(self.before.get(statement, ()), indent)
            after += self._inserted(self.after.get(statement, ()), indent)
            if statement in self.removed:
                continue
            if statement in self.substituted:
                new = self._parsed(self.substituted[statement].statements, indent)
                before += new
                continue
            small.append(self._small(statement, part, indent))
        lines = _leading(node)
        if statements[0] in self.uncommented:
            lines = _without_last_comment(lines)
        kept: list[cst.BaseStatement] = []
        if small:
            last = small[-1]
            if getattr(last, "semicolon", None) is not node.body[-1].semicolon:  # its neighbour went
                small[-1] = last.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            kept = [node.with_changes(body=small, leading_lines=lines)]
            if statements[0] in self.guarded:
                kept = [self._guard(self.guarded[statements[0]], kept[0], indent)]
        elif before and statements[0] in self.substituted:
            before[0] = _with_leading(before[0], lines)
            comment = node.trailing_whitespace
            if comment.comment is not None and isinstance(before[-1], cst.SimpleStatementLine):
                before[-1] = before[-1].with_changes(trailing_whitespace=comment)
            return before + after
        return self._joined(statements[0], before, kept, after, node)

    def _joined(
        self,
        statement: ast.stmt,
        before: list[cst.BaseStatement],
        kept: list[cst.BaseStatement],
        after: list[cst.BaseStatement],
        node: cst.BaseStatement,
    ) -> list[cst.BaseStatement]:
        if not kept:
            return self._heirs(statement, before + after, node)
        inserts = self.before.get(statement, [])
        if before and inserts and inserts[0].above_comments:
            # The new statements take the blank lines; the comments stay with the statement they speak of.
            lines = _leading(kept[0])
            first = _up_to_mark(lines) or len(_leading_blank(lines))
            blank, rest = lines[:first], lines[first:]
            before[0] = _with_leading(before[0], blank)
            if inserts[0].blank_after or (blank and rest and rest[0].comment is not None):
                rest = [_BLANK, *rest]
            kept[0] = _with_leading(kept[0], rest)
        elif before and inserts:
            before[0] = _with_leading(before[0], _leading(kept[0]))
            kept[0] = _with_leading(kept[0], [])
        return before + kept + after

    def _heirs(
        self, statement: ast.stmt, new: list[cst.BaseStatement], node: cst.BaseStatement
    ) -> list[cst.BaseStatement]:
        """New statements beside one that goes: the first takes over its blank lines and the comments that stay."""
        if new:
            new[0] = _with_leading(new[0], self._left_behind(statement, node) or _leading(new[0]))
        return new

    def _inserted(self, inserts: Iterable[Insert], indent: str) -> list[cst.BaseStatement]:
        result: list[cst.BaseStatement] = []
        for insert in inserts:
            new = self._parsed(insert.statements, indent)
            if insert.blank_before and new:
                new[0] = _with_leading(new[0], [_BLANK, *_leading(new[0])])
            result += new
        return result

    def _guard(self, test: str, node: cst.BaseStatement, indent: str) -> cst.BaseStatement:
        (guard,) = self._parsed((f"if {test}:\n    pass",), indent)
        inner = _with_leading(node, [])
        assert isinstance(guard, cst.If)
        return guard.with_changes(leading_lines=_leading(node), body=cst.IndentedBlock([inner]))

    # ---- statements

    def _small(self, statement: ast.stmt, node: cst.BaseSmallStatement, indent: str) -> cst.BaseSmallStatement:
        edits = self.replaced.get(statement)
        if not edits:
            return node
        start = self.source.start(statement)
        line = self._parse(edited(self.source.code(statement), start, edits, statement.col_offset), indent)
        assert isinstance(line, cst.SimpleStatementLine)
        return line.body[0].with_changes(semicolon=node.semicolon)

    def _compound(self, statement: ast.stmt, node: Any, indent: str) -> list[cst.BaseStatement]:
        # `node` is one of libcst's compound statements; which fields it has depends on its kind.
        before = self._inserted(self.before.get(statement, ()), indent)
        after = self._inserted(self.after.get(statement, ()), indent)
        if statement in self.removed:
            return self._heirs(statement, before + after, node)
        if statement in self.substituted:
            new = self._parsed(self.substituted[statement].statements, indent)
            if new:
                new[0] = _with_leading(new[0], list(node.leading_lines))
            return before + new + after
        if statement in self.unwrapped:
            inner = self._unwrap(statement, node, indent)
            return before + inner + after
        if self._is_emptied(statement):
            if self._is_emptied_whole(statement):
                return self._heirs(statement, before + after, node)
            node = self._turned(statement, node, indent)  # only an `if` may keep its `else`
        else:
            node = self._inside(statement, self._header(statement, node, indent), indent)
        if statement in self.uncommented:
            node = _with_leading(node, _without_last_comment(list(node.leading_lines)))
        if statement in self.guarded:
            node = self._guard(self.guarded[statement], node, indent)
        return self._joined(statement, before, [node], after, node)

    def _is_emptied(self, statement: Any) -> TypeGuard[ast.If | ast.For | ast.With]:
        """Whether an `if`, `for` or `with` lost every statement of its body, and its head does nothing by itself."""
        if not isinstance(statement, ast.If | ast.For | ast.With):
            return False
        if not all(child in self.removed or self._is_emptied_whole(child) for child in statement.body):
            return False
        if any(child in self.before or child in self.after for child in statement.body):
            return False
        if isinstance(statement, ast.If):
            elif_follows = len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If)
            return only_reads(statement.test) and not (elif_follows and not self._is_emptied_whole(statement.orelse[0]))
        if isinstance(statement, ast.For):
            return only_reads(statement.iter) and not statement.orelse
        return all(only_reads(item.context_expr) for item in statement.items)

    def _is_emptied_whole(self, statement: ast.stmt) -> bool:
        """Emptied, its `else` included."""
        return self._is_emptied(statement) and all(
            child in self.removed or self._is_emptied_whole(child) for child in getattr(statement, "orelse", ())
        )

    def _turned(self, statement: ast.stmt, node: cst.If, indent: str) -> Any:
        """`if test: (nothing left) else: rest` as `if not test: rest`."""
        assert isinstance(statement, ast.If)
        test = self.source.code(statement.test)
        opposite = test.removeprefix("not ") if isinstance(statement.test, ast.UnaryOp) else f"not {test}"
        if isinstance(statement.test, ast.BoolOp | ast.Compare | ast.IfExp):
            opposite = f"not ({test})"
        (turned,) = self._parsed((f"if {opposite}:\n    pass",), indent)
        assert isinstance(node.orelse, cst.Else) and isinstance(turned, cst.If)
        body = self._suite(statement.orelse, node.orelse.body, indent)
        return turned.with_changes(leading_lines=node.leading_lines, body=body)

    def _unwrap(self, statement: Any, node: Any, indent: str) -> list[cst.BaseStatement]:
        # Continuation lines are kept relative to their block by libcst, so they move left with it.
        result = self._suite_statements(statement.body, node.body, indent + self._indent_of(node.body))
        if result:
            opening = [line for line in _leading(result[0]) if line.comment is not None]
            result[0] = _with_leading(result[0], [*node.leading_lines, *opening])
        return result

    def _header(self, statement: ast.stmt, node: Any, indent: str) -> Any:
        edits = self.replaced.get(statement)
        if not edits:
            return node
        start = self.source.start(statement)
        text = edited(header(self.source.code(statement)), start, edits, statement.col_offset)
        new: Any = self._parse(text.removeprefix("el") + " pass", indent)
        kept = ("leading_lines", "body", "orelse", "decorators", "lines_after_decorators")
        return new.with_changes(**{name: getattr(node, name) for name in kept if hasattr(node, name)})

    def _inside(self, statement: Any, node: Any, indent: str) -> Any:
        """The node with its blocks rewritten."""
        changes: dict[str, Any] = {}
        if isinstance(node, cst.Match):
            cases = [
                case.with_changes(body=self._suite(inner.body, case.body, indent))
                for inner, case in zip(statement.cases, node.cases)
            ]
            return node.with_changes(cases=cases)
        if any(child in self.touched for child in statement.body):
            changes["body"] = self._suite(statement.body, node.body, indent)
        if isinstance(node, cst.Try | cst.TryStar):
            handlers: list[Any] = list(node.handlers)
            changes["handlers"] = [
                handler.with_changes(body=self._suite(inner.body, handler.body, indent))
                for inner, handler in zip(statement.handlers, handlers)
            ]
            if node.finalbody is not None:
                changes["finalbody"] = node.finalbody.with_changes(
                    body=self._suite(statement.finalbody, node.finalbody.body, indent)
                )
        orelse = getattr(node, "orelse", None)
        if orelse is not None and any(child in self.touched for child in statement.orelse):
            changes["orelse"] = self._orelse(statement.orelse, orelse, indent)
        return node.with_changes(**changes) if changes else node

    def _orelse(self, statements: Sequence[ast.stmt], orelse: Any, indent: str) -> Any:
        if isinstance(orelse, cst.If):
            (statement,) = statements
            if statement in self.removed or self._is_emptied_whole(statement):
                return None
            return self._inside(statement, self._header(statement, orelse, indent), indent)
        if all(statement in self.removed or self._is_emptied_whole(statement) for statement in statements):
            return None
        return orelse.with_changes(body=self._suite(statements, orelse.body, indent))

    def _suite(self, statements: Sequence[ast.stmt], suite: cst.BaseSuite, indent: str) -> cst.BaseSuite:
        if not any(statement in self.touched for statement in statements):
            return suite
        if isinstance(suite, cst.SimpleStatementSuite):
            return self._one_line_suite(statements, suite, indent)
        assert isinstance(suite, cst.IndentedBlock)
        body = self._body(statements, suite.body, indent + self._indent_of(suite))
        footer = self._footer
        if not body:
            body = [cst.SimpleStatementLine([cst.Pass()])]
        return suite.with_changes(body=body, footer=[*footer, *suite.footer])

    def _one_line_suite(
        self, statements: Sequence[ast.stmt], suite: cst.SimpleStatementSuite, indent: str
    ) -> cst.BaseSuite:
        inserts = any(s in self.before or s in self.after or s in self.substituted for s in statements)
        if not inserts:
            kept = [self._small(s, node, indent) for s, node in zip(statements, suite.body) if s not in self.removed]
            if not kept:
                kept = [cst.Pass()]
            kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            return suite.with_changes(body=kept)
        lines = [
            cst.SimpleStatementLine([node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for node in suite.body
        ]
        body = self._body(statements, lines, indent + self.module.default_indent)
        return cst.IndentedBlock(body, header=suite.trailing_whitespace)

    def _suite_statements(
        self, statements: Sequence[ast.stmt], suite: cst.BaseSuite, indent: str
    ) -> list[cst.BaseStatement]:
        if isinstance(suite, cst.SimpleStatementSuite):
            lines = [
                cst.SimpleStatementLine([node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for node in suite.body
            ]
            return self._body(statements, lines, indent)
        assert isinstance(suite, cst.IndentedBlock)
        return self._body(statements, suite.body, indent)

    # ---- text

    def _indent_of(self, suite: cst.BaseSuite) -> str:
        indent = suite.indent if isinstance(suite, cst.IndentedBlock) else None
        return indent if indent is not None else self.module.default_indent

    def _parse(self, text: str, indent: str) -> cst.BaseStatement:
        """One statement, parsed at the indentation of the block it goes into."""
        config = self.module.config_for_parsing
        if not indent:
            return cst.parse_statement(text, config=config)
        newline = self.module.default_newline
        block = cst.parse_statement(f"if 1:{newline}{indent}{text}{newline}", config=config)
        assert isinstance(block, cst.If) and isinstance(block.body, cst.IndentedBlock)
        return block.body.body[0]

    def _parsed(self, texts: Iterable[str], indent: str) -> list[cst.BaseStatement]:
        unit, newline = self.module.default_indent, self.module.default_newline
        result = []
        for text in texts:
            lines = [_with_unit(line, unit) for line in text.split("\n")]
            result.append(self._parse((newline + indent).join(lines), indent))
        return result


class _StatementIndex:
    """Finds the statement whose own expressions, not those of its block, hold a span."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def owner(self, start: int, end: int) -> ast.stmt:
        statements: Sequence[ast.stmt] = self.source.tree.body
        found: ast.stmt | None = None
        while True:
            inner = next((s for s in statements if self.source.start(s) <= start and end <= self.source.end(s)), None)
            if inner is None:
                if found is None:
                    raise AssertionError(f"no statement holds the edit at offset {start}")
                return found
            found = inner
            statements = inner_statements(inner)


def inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    """The statements of all blocks of a compound statement; none for a simple one."""
    return [
        child
        for name in ("body", "orelse", "finalbody", "handlers", "cases")
        for part in getattr(statement, name, ())
        for child in (part.body if isinstance(part, ast.ExceptHandler | ast.match_case) else [part])
    ]


_BLANK = cst.EmptyLine(indent=False)


def _with_unit(line: str, unit: str) -> str:
    level = (len(line) - len(line.lstrip(" "))) // 4
    return unit * level + line.lstrip(" ")


def _leading(node: cst.BaseStatement) -> list[cst.EmptyLine]:
    return list(getattr(node, "leading_lines", ()))


def _with_leading(node: cst.BaseStatement, lines: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    return node.with_changes(leading_lines=lines)


def _leading_blank(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    blank = []
    for line in lines:
        if line.comment is not None:
            break
        blank.append(line)
    return blank


def _under_one_guard(first: cst.BaseStatement, second: cst.BaseStatement) -> cst.BaseStatement:
    """The body of the second `if` joins that of the first; its comments and blank lines go with it."""
    assert isinstance(first, cst.If) and isinstance(second, cst.If)
    opening, added = list(second.body.body), _leading(second)
    opening[0] = _with_leading(opening[0], added)  # type: ignore[arg-type]
    return first.with_changes(body=first.body.with_changes(body=[*first.body.body, *opening]))


def _up_to_mark(lines: Sequence[cst.EmptyLine]) -> int:
    """How many lines there are up to the last mark of a notebook's cell, with it; what is inserted belongs behind it."""
    marks = [i for i, line in enumerate(lines) if line.comment and line.comment.value.startswith(KEPT_COMMENT)]
    return marks[-1] + 1 if marks else 0


def _without_last_comment(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Without the comment block that touches the statement; a notebook's cell marks stay."""
    kept = list(lines)
    while kept and kept[-1].comment is not None and not kept[-1].comment.value.startswith(KEPT_COMMENT):
        kept.pop()
    return kept


def _merged(earlier: list[cst.EmptyLine], later: list[cst.EmptyLine], first: bool) -> list[cst.EmptyLine]:
    """What stands between two statements when the one between them went: comments of both, blank lines not doubled."""
    blank_before = len(_leading_blank(earlier))
    comments = earlier[blank_before:]
    blank_after = len(_leading_blank(later))
    rest = later[blank_after:]
    if comments:
        return [*earlier, *later] if not first else [*comments, *later]
    if first:
        return [*earlier, *rest]
    return [*(earlier if blank_before >= blank_after else later[:blank_after]), *rest]
