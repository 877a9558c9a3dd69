"""How the paths of a program are put together, and whether two of them may name one file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from accel_migrate.check.evidence import Side, argument_of, parameter_names
from accel_migrate.check.stores import Store, Stores, returned
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.program import Function, default_of
from accel_migrate.flow.scopes import Module

_DEPTH = 6
_MOST = 12  # spellings of one path
_HOLE = re.compile(r"<[^<>]*>")  # a part that is not written out, by what it is read from
_JOINS = frozenset(["join", "joinpath"])
_PATHS = frozenset(["Path", "PurePath", "cwd", "home", "resolve", "absolute", "expanduser", "joinpath"])
_SAME = frozenset(["str", "Path", "PurePath", "abspath", "expanduser", "realpath", "normpath", "fspath", "resolve"])


class Paths:
    """The spellings of a path, as far as they are written out: `<args.folder>/best.pt`."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._stores = side.once(Stores)
        self._known: dict[ast.expr, frozenset[str]] = {}

    def of(self, file: Module, node: ast.expr) -> frozenset[str]:
        if node not in self._known:
            self._known[node] = frozenset(list(dict.fromkeys(self._of(file, node, 0)))[:_MOST])
        return self._known[node]

    def _of(self, file: Module, node: ast.expr, depth: int) -> list[str]:
        hole = [_hole(node)]
        if depth > _DEPTH:
            return hole
        match node:
            case ast.Constant(value=str(text)):
                return [re.sub(r"\*+", "<>", text)]  # `*.pt` may be any of them
            case ast.JoinedStr(values=parts):
                return self._together(file, parts, "", depth)
            case ast.FormattedValue(value=part) | ast.NamedExpr(value=part):
                return self._of(file, part, depth + 1)
            case ast.BinOp(op=ast.Add(), left=left, right=right) if not _is_number(node):
                return self._together(file, [left, right], "", depth)
            case ast.BinOp(op=ast.Div(), left=left, right=right):
                joined = self._together(file, [left, right], "/", depth)
                named = any(_HOLE.sub("", text).strip("/") for text in joined) or self._is_path(file, left, depth)
                return joined if named else hole  # a quotient, by all that is known
            case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text)), right=right):
                given = right.elts if isinstance(right, ast.Tuple) else [right]
                return self._filled(file, re.split(r"%[-+0-9.]*[a-z]", text), given, depth)
            case ast.IfExp(body=one, orelse=other):
                return [*self._of(file, one, depth + 1), *self._of(file, other, depth + 1)]
            case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant(value=str(text)))):
                return self._filled(file, re.split(r"\{[^{}]*\}", text), node.args if "{}" in text else [], depth)
            case ast.Call() if called_name(node) in _JOINS and node.args:
                owner = node.func.value if isinstance(node.func, ast.Attribute) else None
                of_path = [owner] if owner is not None and called_name(node) == "joinpath" else []
                return self._together(file, [*of_path, *node.args], "/", depth)
            case ast.Call(args=[first]) if called_name(node) in _SAME:
                return self._of(file, first, depth + 1)
            case ast.Call():
                homes = {each: self._side.flows.function_file[each] for each in self._side.flows.callees.get(node, ())}
                results = [(home, value) for each, home in homes.items() for value in returned(each)]
                return [text for home, value in results for text in self._of(home, value, depth + 1)] or hole
            case ast.Name():
                return self._variable(file, node, depth) or hole
            case ast.Attribute():
                return self._field(file, node, depth) or hole
            case ast.Subscript(value=ast.Name() as kept):
                return self._elements(file, kept, depth + 1) or hole
        return hole

    def _together(self, file: Module, parts: Iterable[ast.expr], between: str, depth: int) -> list[str]:
        found = [""]
        for index, part in enumerate(parts):
            ends = self._of(file, part, depth + 1)
            found = [f"{one}{between if index else ''}{end}" for one in found for end in ends][:_MOST]
        return found

    def _is_path(self, file: Module, node: ast.expr, depth: int) -> bool:
        """Whether something is made by `Path`: what is divided otherwise is a number."""
        match node:
            case ast.Call():
                return called_name(node) in _PATHS
            case ast.BinOp(op=ast.Div(), left=left):
                return self._is_path(file, left, depth)
            case ast.Name() if depth <= _DEPTH:
                stores = [store for store in self._stores.reaching(file, node) if store.value is not None]
                return any(self._is_path(store.file, store.value, depth + 1) for store in stores)  # type: ignore[arg-type]
        return False

    def _filled(self, file: Module, texts: list[str], given: list[ast.expr], depth: int) -> list[str]:
        """A text with values in its gaps; what is not known to be in one is left open."""
        found = texts[:1]
        for index, text in enumerate(texts[1:]):
            inside = self._of(file, given[index], depth + 1) if index < len(given) else ["<>"]
            found = [f"{one}{part}{text}" for one in found for part in inside][:_MOST]
        return found

    def _variable(self, file: Module, name: ast.Name, depth: int) -> list[str]:
        found: list[str] = []
        for store in self._stores.reaching(file, name):
            found += self._stored(store, name, depth)
        scope = file.binder(name.id, file.scope(name))
        function = scope.node if scope is not None else None
        if isinstance(function, Function) and name.id in parameter_names(function):
            sites = self._side.above(function)
            for site in sites:
                given = argument_of(function, site.call, name.id)
                if given is not None and given is not name:
                    found += self._of(site.file, given, depth + 1)
            default = default_of(function, name.id)
            if default is not None and (
                not sites or any(argument_of(function, s.call, name.id) is None for s in sites)
            ):
                found += self._of(file, default, depth + 1)
        return found[:_MOST]

    def _field(self, file: Module, node: ast.Attribute, depth: int) -> list[str]:
        """What the methods of its class set an attribute to, each time as a whole."""
        owner = self_of(file, node.value)
        made = self._side.flows.made(file, node.value, "instance")
        classes = {owner.node} if owner is not None else {each.node for each in made}
        stores = [store for each in classes for store in self._stores.of(("field of", each, node.attr))]
        if any(store.anywhere or store.at or store.of or store.value is None for store in stores):
            return []
        return [text for s in stores if s.value is not None for text in self._of(s.file, s.value, depth + 1)][:_MOST]

    def _elements(self, file: Module, node: ast.expr, depth: int) -> list[str]:
        """What is in a list: written out, made by a comprehension, or appended one by one."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [text for part in parts for text in self._of(file, part, depth)]
            case ast.ListComp(elt=part):
                return self._of(file, part, depth)
            case ast.Call(args=[inner]) if called_name(node) in ("sorted", "list", "tqdm", "reversed", "set"):
                return self._elements(file, inner, depth)
            case ast.Name() if depth <= _DEPTH:
                found: list[str] = []
                for store in self._stores.reaching(file, node):
                    if store.value is not None and store.at == ("element",) and not store.anywhere and not store.of:
                        found += self._of(store.file, store.value, depth + 1)
                    elif store.value is not None and not store.at and not store.anywhere and not store.of:
                        found += self._elements(store.file, store.value, depth + 1)
                return found[:_MOST]
        return []

    def _stored(self, store: Store, name: ast.Name, depth: int) -> list[str]:
        if store.anywhere or store.at or store.value is None or store.value is name:
            return [f"<{name.id}>"]
        if store.of == ("element",):
            return self._elements(store.file, store.value, depth + 1) or [f"<{name.id}>"]
        if store.of or any(isinstance(part, ast.Name) and part.id == name.id for part in ast.walk(store.value)):
            return [f"<{name.id}>"]
        return self._of(store.file, store.value, depth + 1)


def _hole(node: ast.expr) -> str:
    """A part that is not written out; the same text may be the same part."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.BinOp):
        return f"<{re.sub('[<>/]', '|', unparse(node))}>"
    return "<>"


def may_be_one(some: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two paths may name one file, or one the folder of the other: nothing in them says no, and something yes."""
    return any(_may_be_one(one, other) for one in some for other in others)


def may_end_alike(some: frozenset[str], others: frozenset[str]) -> bool:
    """Whether nothing says that two files have different names; each may be in any folder."""
    ends = [[parts[-1] for text in texts if (parts := _parts(text))] for texts in (some, others)]
    return any(_fit(one, other) for one in ends[0] for other in ends[1])


def _is_number(node: ast.expr) -> bool:
    """Whether it is a number wherever it can be computed: `epoch + 1`, `1 + len(losses) + start`."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()) | ast.Call(func=ast.Name(id="len" | "int" | "float")):
            return True
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Pow(), left=left, right=right):
            return _is_number(left) or _is_number(right)
    return False


def is_path(spellings: frozenset[str]) -> bool:
    """Whether something of a path is written out: a folder or the end of a file's name."""
    return any("/" in text or re.search(r"\.\w+$", _HOLE.sub("", text)) for text in spellings)


def _may_be_one(one: str, other: str) -> bool:
    if one == other:
        return one != "<>"
    first, second = _parts(one), _parts(other)
    if not first or not second:
        return False
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) < len(longer) and longer[: len(shorter)] == shorter:
        return shorter != ["<>"]  # the folder
    if not _fit(first[-1], second[-1]):
        return False
    if first[-1] == second[-1] and "<" not in first[-1]:
        return True
    unknown = any(_HOLE.fullmatch(path) for path in (one, other))
    return not unknown and bool(_evidence(first) & _evidence(second))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _fit(one: str, other: str) -> bool:
    """Whether two names may be the same, by what is written out at their ends."""
    if "<" not in one and "<" not in other:
        return one == other
    begins, ends = [_HOLE.split(each) for each in (one, other)], [_HOLE.split(each) for each in (one, other)]
    first, second = begins[0][0], begins[1][0]
    last, end = ends[0][-1], ends[1][-1]
    return (first.startswith(second) or second.startswith(first)) and (last.endswith(end) or end.endswith(last))


def _evidence(parts: list[str]) -> set[str]:
    """What is known of a path: the words that are written out, and what the others are read from."""
    words = {word for part in parts for word in _HOLE.split(part) if len(word) > 2 and not word.startswith(".")}
    return words | {hole for part in parts for hole in _HOLE.findall(part) if hole != "<>"}
