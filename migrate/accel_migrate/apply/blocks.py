"""The blocks of a file with statements moved, put in, taken out and guarded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import libcst as cst

from accel_migrate.apply.lines import (
    BLANK,
    commented_out,
    leading,
    leading_blank,
    merged,
    under_one_guard,
    up_to_mark,
    with_leading,
    without_last_comment,
)
from accel_migrate.apply.skeleton import Skeleton
from accel_migrate.apply.sorting import under
from accel_migrate.effects import only_reads
from accel_migrate.plan import Insert

_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_IN_NEED_OF_PARSING = re.compile(r"^\s|[\n\r:;#@]|^$")


class Blocks:
    """Rebuilds the blocks that edits touch, in a tree that has the same statements as the file."""

    def __init__(self, module: cst.Module, skeleton: Skeleton) -> None:
        self.source = skeleton.source
        self.module = module
        self.edits = edits = skeleton.edits
        self.skeleton = skeleton
        self._written = self._parsed_at_once(edits.written())

    def result(self) -> str:
        body = self._body(self.source.tree.body, self.module.body)
        return self.module.with_changes(body=body).code

    # ---- blocks

    def _body(self, statements: Sequence[ast.stmt], nodes: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """The new statements of one block."""
        result: list[cst.BaseStatement] = []
        carried: list[cst.EmptyLine] | None = None  # what a removed statement leaves to the next one
        position = 0
        alone = False  # whether nothing was put in beside the last statement
        below = 0  # how many statements were put in below it
        for node in nodes:
            count = self.skeleton.count(node)
            mine = statements[position : position + count]
            position += count
            if below and result and (tried := commented_out(leading(node))):
                result[-below] = with_leading(result[-below], [*tried, *leading(result[-below])])
                node = with_leading(node, leading(node)[len(tried) :])
            below = sum(len(insert.statements) for each in mine for insert in self.edits.after.get(each, ()))
            if not any(statement in self.edits.touched for statement in mine):
                new: list[cst.BaseStatement] = [node]
            elif isinstance(node, cst.SimpleStatementLine):
                new = self._line(mine, node)
            else:
                new = self._compound(mine[0], node)
            if not new:
                lost = self._left_behind(mine[0], node)
                carried = merged(carried, lost, first=not result) if carried is not None else lost
                continue
            if carried is not None:
                new[0] = with_leading(new[0], merged(carried, leading(new[0]), first=not result))
                carried = None
            if result and alone and mine[0] not in self.edits.before and self._same_guard(statements, mine[0]):
                result[-1] = under_one_guard(result[-1], new[0])
                result += new[1:]
                alone = len(new) == 1
            else:
                result += new
                alone = len(new) == 1
        self._footer = [line for line in carried or [] if line.comment is not None]
        return result

    def _same_guard(self, statements: Sequence[ast.stmt], statement: ast.stmt) -> bool:
        """Whether a statement comes under the same guard as the one right above it."""
        index = next(i for i, item in enumerate(statements) if item is statement)
        test = self.edits.guarded.get(statement)
        return test is not None and index > 0 and self.edits.guarded.get(statements[index - 1]) == test

    def _left_behind(self, statement: ast.stmt, node: cst.BaseStatement) -> list[cst.EmptyLine]:
        lines = leading(node)
        removed = self.edits.removed.get(statement)
        if removed is not None and not removed.keep_comments:
            lines = without_last_comment(lines, removed.lines)
        elif statement in self.edits.uncommented:
            lines = without_last_comment(lines, self.edits.uncommented[statement])
        return lines

    def _line(self, statements: Sequence[ast.stmt], node: cst.SimpleStatementLine) -> list[cst.BaseStatement]:
        small: list[cst.BaseSmallStatement] = []
        before: list[cst.BaseStatement] = []
        after: list[cst.BaseStatement] = []
        for statement, part in zip(statements, node.body):
            before += self._inserted(self.edits.before.get(statement, ()))
            after += self._inserted(self.edits.after.get(statement, ()))
            if statement in self.edits.removed:
                continue
            if statement in self.edits.substituted:
                new = self._parsed(self.edits.substituted[statement].statements)
                before += new
                continue
            small.append(part)
        lines = leading(node)
        if statements[0] in self.edits.uncommented:
            lines = without_last_comment(lines, self.edits.uncommented[statements[0]])
        kept: list[cst.BaseStatement] = []
        if small:
            last = small[-1]
            if getattr(last, "semicolon", None) is not node.body[-1].semicolon:  # its neighbour went
                small[-1] = last.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            if statements[-1] in self.edits.bare:
                newline = node.trailing_whitespace.newline
                node = node.with_changes(trailing_whitespace=cst.TrailingWhitespace(newline=newline))
            kept = [node.with_changes(body=small, leading_lines=lines)]
            if statements[0] in self.edits.guarded:
                kept = [self._under(self.edits.guarded[statements[0]], kept[0])]
        elif before and statements[0] in self.edits.substituted:
            before[0] = with_leading(before[0], lines)
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
        inserts = self.edits.before.get(statement, [])
        if before and isinstance(kept[0], cst.FunctionDef | cst.ClassDef):
            return before + kept + after  # its blank lines and comments are those of a definition
        if before and inserts and inserts[0].above_comments:
            # The new statements take the blank lines; the comments stay with the statement they speak of.
            lines = leading(kept[0])
            first = up_to_mark(lines) or len(leading_blank(lines))
            blank, rest = lines[:first], lines[first:]
            before[0] = with_leading(before[0], blank)
            if inserts[0].blank_after or (blank and rest and rest[0].comment is not None):
                rest = [BLANK, *rest]
            kept[0] = with_leading(kept[0], rest)
        elif before and inserts:
            before[0] = with_leading(before[0], leading(kept[0]))
            kept[0] = with_leading(kept[0], [])
        return before + kept + after

    def _heirs(
        self, statement: ast.stmt, new: list[cst.BaseStatement], node: cst.BaseStatement
    ) -> list[cst.BaseStatement]:
        """New statements beside one that goes: the first takes over its blank lines and the comments that stay."""
        if new:
            new[0] = with_leading(new[0], self._left_behind(statement, node) or leading(new[0]))
        return new

    def _inserted(self, inserts: Iterable[Insert]) -> list[cst.BaseStatement]:
        result: list[cst.BaseStatement] = []
        for insert in inserts:
            new = self._parsed(insert.statements)
            if insert.blank_before and new:
                new[0] = with_leading(new[0], [BLANK, *leading(new[0])])
            result += new
        return result

    def _under(self, blocks: tuple[str, ...], node: cst.BaseStatement) -> cst.BaseStatement:
        for block in blocks:
            (around,) = self._parsed((block,))
            inner = with_leading(node, [])
            assert isinstance(around, cst.If | cst.For)
            node = around.with_changes(leading_lines=leading(node), body=cst.IndentedBlock([inner]))
        return node

    # ---- statements

    def _compound(self, statement: ast.stmt, node: Any) -> list[cst.BaseStatement]:
        # `node` is one of libcst's compound statements; which fields it has depends on its kind.
        before = self._inserted(self.edits.before.get(statement, ()))
        after = self._inserted(self.edits.after.get(statement, ()))
        if statement in self.edits.removed:
            return self._heirs(statement, before + after, node)
        if statement in self.edits.substituted:
            new = self._parsed(self.edits.substituted[statement].statements)
            if new:
                new[0] = with_leading(new[0], list(node.leading_lines))
            return before + new + after
        if statement in self.edits.unwrapped:
            inner = self._unwrap(statement, node)
            return before + inner + after
        if self._is_emptied(statement):
            if self._is_emptied_whole(statement):
                return self._heirs(statement, before + after, node)
            node = self._turned(statement, node)  # only an `if` may keep its `else`
        else:
            node = self._inside(statement, node)
        if statement in self.edits.uncommented:
            node = with_leading(node, without_last_comment(list(node.leading_lines), self.edits.uncommented[statement]))
        if statement in self.edits.guarded:
            node = self._under(self.edits.guarded[statement], node)
        return self._joined(statement, before, [node], after, node)

    def _is_emptied(self, statement: Any) -> TypeGuard[ast.If | ast.For | ast.With]:
        """Whether an `if`, `for` or `with` lost every statement of its body, and its head does nothing by itself."""
        if not isinstance(statement, ast.If | ast.For | ast.With):
            return False
        if not all(child in self.edits.removed or self._is_emptied_whole(child) for child in statement.body):
            return False
        if any(child in self.edits.before or child in self.edits.after for child in statement.body):
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
            child in self.edits.removed or self._is_emptied_whole(child) for child in getattr(statement, "orelse", ())
        )

    def _turned(self, statement: ast.stmt, node: cst.If) -> Any:
        """`if test: (nothing left) else: rest` as `if not test: rest`."""
        assert isinstance(statement, ast.If)
        test = self.source.code(statement.test)
        opposite = test.removeprefix("not ") if isinstance(statement.test, ast.UnaryOp) else f"not {test}"
        if isinstance(statement.test, ast.BoolOp | ast.Compare | ast.IfExp):
            opposite = f"not ({test})"
        (turned,) = self._parsed((under(f"if {opposite}"),))
        assert isinstance(node.orelse, cst.Else) and isinstance(turned, cst.If)
        body = self._suite(statement.orelse, node.orelse.body)
        return turned.with_changes(leading_lines=node.leading_lines, body=body)

    def _unwrap(self, statement: Any, node: Any) -> list[cst.BaseStatement]:
        # Continuation lines are kept relative to their block by libcst, so they move left with it.
        result = self._suite_statements(statement.body, node.body)
        if result:
            opening = [line for line in leading(result[0]) if line.comment is not None]
            result[0] = with_leading(result[0], [*node.leading_lines, *opening])
        return result

    def _inside(self, statement: Any, node: Any) -> Any:
        """The node with its blocks rewritten."""
        changes: dict[str, Any] = {}
        if isinstance(node, cst.Match):
            cases = [
                case.with_changes(body=self._suite(inner.body, case.body))
                for inner, case in zip(statement.cases, node.cases)
            ]
            return node.with_changes(cases=cases)
        if any(child in self.edits.touched for child in statement.body):
            changes["body"] = self._suite(statement.body, node.body)
        if isinstance(node, cst.Try | cst.TryStar):
            handlers: list[Any] = list(node.handlers)
            changes["handlers"] = [
                handler.with_changes(body=self._suite(inner.body, handler.body))
                for inner, handler in zip(statement.handlers, handlers)
            ]
            if node.finalbody is not None:
                changes["finalbody"] = node.finalbody.with_changes(
                    body=self._suite(statement.finalbody, node.finalbody.body)
                )
        orelse = getattr(node, "orelse", None)
        if orelse is not None and any(child in self.edits.touched for child in statement.orelse):
            changes["orelse"] = self._orelse(statement.orelse, orelse)
        return node.with_changes(**changes) if changes else node

    def _orelse(self, statements: Sequence[ast.stmt], orelse: Any) -> Any:
        if isinstance(orelse, cst.If):
            (statement,) = statements
            if statement in self.edits.removed or self._is_emptied_whole(statement):
                return None
            return self._inside(statement, orelse)
        if all(statement in self.edits.removed or self._is_emptied_whole(statement) for statement in statements):
            return None
        return orelse.with_changes(body=self._suite(statements, orelse.body))

    def _suite(self, statements: Sequence[ast.stmt], suite: cst.BaseSuite) -> cst.BaseSuite:
        if not any(statement in self.edits.touched for statement in statements):
            return suite
        if isinstance(suite, cst.SimpleStatementSuite):
            return self._one_line_suite(statements, suite)
        assert isinstance(suite, cst.IndentedBlock)
        body = self._body(statements, suite.body)
        footer = self._footer
        if not body:
            body = [cst.SimpleStatementLine([cst.Pass()])]
        return suite.with_changes(body=body, footer=[*footer, *suite.footer])

    def _one_line_suite(self, statements: Sequence[ast.stmt], suite: cst.SimpleStatementSuite) -> cst.BaseSuite:
        inserts = any(
            s in self.edits.before or s in self.edits.after or s in self.edits.substituted for s in statements
        )
        if not inserts:
            kept = [node for s, node in zip(statements, suite.body) if s not in self.edits.removed]
            if not kept:
                kept = [cst.Pass()]
            kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            return suite.with_changes(body=kept)
        lines = [
            cst.SimpleStatementLine([node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for node in suite.body
        ]
        body = self._body(statements, lines)
        return cst.IndentedBlock(body, header=suite.trailing_whitespace)

    def _suite_statements(self, statements: Sequence[ast.stmt], suite: cst.BaseSuite) -> list[cst.BaseStatement]:
        if isinstance(suite, cst.SimpleStatementSuite):
            lines = [
                cst.SimpleStatementLine([node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for node in suite.body
            ]
            return self._body(statements, lines)
        assert isinstance(suite, cst.IndentedBlock)
        return self._body(statements, suite.body)

    # ---- text

    def _parsed(self, texts: Iterable[str]) -> list[cst.BaseStatement]:
        return [self._line_of(text) or self._written.get(text) or self._parse(text) for text in texts]

    def _line_of(self, text: str) -> cst.BaseStatement | None:
        """A simple statement in one line, which need not be taken apart to be printed as it is."""
        if _IN_NEED_OF_PARSING.search(text):
            return None
        return cst.SimpleStatementLine([cst.Expr(cst.Name(self.skeleton.name(text)))])

    def _parse(self, text: str) -> cst.BaseStatement:
        return cst.parse_statement(self._in_its_style(text), config=self.module.config_for_parsing)

    def _parsed_at_once(self, texts: list[str]) -> dict[str, cst.BaseStatement]:
        """One run of the parser for all new statements; whatever is not one statement is left to a run of its own."""
        known = list(dict.fromkeys(filter(_IN_NEED_OF_PARSING.search, texts)))
        newline = self.module.default_newline
        joined = "".join(self._in_its_style(text) + newline for text in known)
        body = cst.parse_module(joined, config=self.module.config_for_parsing).body
        return dict(zip(known, body)) if len(body) == len(known) else {}

    def _in_its_style(self, text: str) -> str:
        """The text with the file's own newlines and indentation."""
        unit, newline = self.module.default_indent, self.module.default_newline
        return newline.join(_with_unit(line, unit) for line in text.split("\n"))


def _with_unit(line: str, unit: str) -> str:
    level = (len(line) - len(line.lstrip(" "))) // 4
    return unit * level + line.lstrip(" ")
