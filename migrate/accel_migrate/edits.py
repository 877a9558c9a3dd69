"""Small edits that several rules make, in offsets of the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from accel_migrate.analysis.distribution.replacements import ACCELERATOR
from accel_migrate.plan import Change, Edit, Remove, Replace, Safety, Substitute
from accel_migrate.source import Source

if TYPE_CHECKING:
    from accel_migrate.flow.scopes import Module
    from accel_migrate.rule import Context

Argument = ast.expr | ast.arg | ast.keyword

_MOST = 6  # places that one note names


def change(
    context: Context, code: str, node: ast.AST, message: str, edits: Iterable[Edit], *, required: bool = True
) -> Change:
    """A change for the training of a context, that is reported at a node."""
    return Change(code, *_place(node), message, Safety.SAFE, tuple(edits), context.training.index, required)


def note(context: Context, code: str, node: ast.AST, message: str) -> Change:
    """What a person should know about a node of the training of a context."""
    return Change(code, *_place(node), message, Safety.NOTE, (), context.training.index)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


def places(module: Module, nodes: Iterable[tuple[Module, ast.AST]]) -> str:
    """`line 4, line 9, other.py:3`: where nodes are, as seen from a file."""
    shown = list(dict.fromkeys(module.place_of(*each) for each in nodes))
    return ", ".join(shown[:_MOST]) + (f" and {len(shown) - _MOST} more" if len(shown) > _MOST else "")


def dot(source: Source, attribute: ast.Attribute) -> int:
    """Where the dot before an attribute's name stands."""
    position = source.end(attribute) - len(attribute.attr)
    return source.text.rindex(".", 0, position)


def opening_bracket(source: Source, call: ast.Call) -> int:
    """Where the bracket that opens a call's arguments stands."""
    return source.text.index("(", source.end(call.func))


def drop_method(source: Source, call: ast.Call) -> Replace:
    """`receiver.method(...)` becomes `receiver`; a line that held nothing else goes with it."""
    assert isinstance(call.func, ast.Attribute)
    start, end = dot(source, call.func), source.end(call)
    line_start = source.text.rfind("\n", 0, start) + 1
    line_end = source.text.find("\n", end)
    if not source.text[line_start:start].strip() and line_end >= 0 and not source.text[end:line_end].strip():
        return Replace(source.text.rfind("\n", 0, start), end, "")
    return Replace(start, end, "")


def replace_node(source: Source, node: ast.expr, text: str) -> Replace:
    return Replace(source.start(node), source.end(node), text)


def replace_callee(source: Source, call: ast.Call, text: str) -> Replace:
    """`anything(...)` becomes `text(...)`."""
    return Replace(source.start(call.func), source.end(call.func), text)


def comment_above(source: Source, statement: ast.stmt, parted: bool = False) -> str:
    """The comment lines that touch a statement from above, joined; with `parted`, also behind blank lines."""
    lines: list[str] = []
    row = statement.lineno - 2
    starts = source.line_starts
    while parted and row >= 0 and not source.text[starts[row] : starts[row + 1]].strip():
        row -= 1
    while row >= 0:
        text = source.text[starts[row] : starts[row + 1]].strip()
        if not text.startswith("#"):
            break
        lines.append(text)
        row -= 1
    return " ".join(reversed(lines))


_DEVICES = "(device|gpus?|cuda|card)"
_DEVICES_OF_OTHERS = "(设备|設備|显卡|デバイス|디바이스|장치|gpu|cuda|device)"  # Chinese, Japanese, Korean
_MOVES_OF_OTHERS = "(放|移|转|轉|送|搬|載|올|옮|이동|보내|보냄|전송)"
_SPEAKS_OF_MOVING = re.compile(
    rf"\b(mov\w+|copy|copies|transfer\w*|send\w*|put|push|place|to)\b.*\b{_DEVICES}\b"
    r"|^#\s*(to|on)?\s*(gpu|cuda|device)\s*$"
    rf"|{_MOVES_OF_OTHERS}.*{_DEVICES_OF_OTHERS}|{_DEVICES_OF_OTHERS}.*{_MOVES_OF_OTHERS}",
    re.I,
)


_GOES_ON = re.compile(
    r"(\b(and|or|to|the|an?|of|on|onto|into|with|for|so|that|which|then|all|as|by|in|from|move|send|put|copy|transfer)|,)\s*$",
    re.I,
)


def left_empty(module: Module, statement: ast.stmt, gone: set[ast.stmt]) -> Iterator[ast.If]:
    """The conditions around a statement that have nothing in them once some statements are gone."""
    for parent in module.ancestors(statement):
        if not isinstance(parent, ast.If) or not gone.issuperset([*parent.body, *parent.orelse]):
            return
        yield parent
        gone = {*gone, parent}


def lines_about_moving(comment: str) -> int:
    """How many lines of a comment, from below, say no more than that something is moved to a device: no longer true."""
    lines = re.split(r" (?=#)", comment)
    if not _SPEAKS_OF_MOVING.search(comment) or len(lines) > 2 or any(map(_is_code, lines)):
        return 0
    first, last = lines[0], lines[-1]
    apart = _SPEAKS_OF_MOVING.search(last) and not _SPEAKS_OF_MOVING.search(first) and not _GOES_ON.search(first)
    return 1 if apart else len(lines)


def _is_code(comment: str) -> bool:
    """Whether a comment is a statement that the author has put out of use."""
    try:
        body = ast.parse(comment.lstrip("#").strip()).body
    except (SyntaxError, ValueError):
        return False
    return any(not isinstance(each, ast.Expr) or isinstance(each.value, ast.Call) for each in body)


def quoted(source: Source, text: str) -> str:
    """A string literal in the quotes that the file prefers."""
    single, double = (source.text.count(mark) - 3 * source.text.count(mark * 3) for mark in ("'", '"'))
    return f"'{text}'" if single > double else f'"{text}"'


_SPEAKS_OF_PROCESSES = re.compile(
    r"\b(ddp|distributed\w*|process(es)?[ _]group|nccl|backend|ranks?|samplers?|set_epoch|world|gpus?|cuda|device|wrap"
    r"|(re)?shuffl\w*)\b",
    re.I,
)


def without(source: Source, statement: ast.stmt, subject: re.Pattern[str]) -> Remove:
    """The statement goes, and with it a comment right above that speaks of the same subject."""
    above = comment_above(source, statement)
    return Remove(statement, keep_comments=not (above and subject.search(above)))


def piece_changes(context: Context, code: str) -> Iterator[Change]:
    """The changes that the replacements of hand-written distribution under one code ask for in one file."""
    training, module = context.training, context.module
    for replacement in training.distribution.replacements:
        if replacement.module is not module or replacement.code != code or replacement.node in training.storage.hoisted:
            continue
        if replacement.text is None:
            assert isinstance(replacement.node, ast.stmt)
            edits = [without(module.source, replacement.node, _SPEAKS_OF_PROCESSES)]
            yield change(context, code, replacement.node, replacement.message, edits)
            continue
        spelled = training.accelerator(module, replacement.node)
        if ACCELERATOR in replacement.text and spelled is None:
            continue  # an optional one, out of reach
        text = replacement.text.replace(ACCELERATOR, spelled or "")
        if isinstance(replacement.node, ast.stmt):
            edit: Edit = Substitute(replacement.node, tuple(text.split("\n")))
        else:
            edit = replace_node(module.source, replacement.node, text)
        yield change(context, code, replacement.node, replacement.message, [edit])


def add_argument(source: Source, call: ast.Call, text: str) -> Replace:
    """One more argument behind the last."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not arguments:
        inside = opening_bracket(source, call) + 1
        return Replace(inside, inside, text)
    return behind(source, max(arguments, key=source.end), text, arguments)


def behind(source: Source, argument: Argument, text: str, among: Sequence[Argument]) -> Replace:
    """One more argument or parameter behind one of several, on a line of its own where each of them has its own."""
    line = source.text[source.text.rfind("\n", 0, source.start(argument)) + 1 : source.start(argument)]
    apart = len(among) > 1 and len({each.lineno for each in among}) == len(among) and not line.strip()
    end = source.end(argument)
    return Replace(end, end, f",\n{line}{text}" if apart else f", {text}")
