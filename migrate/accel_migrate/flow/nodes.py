"""What `ast` offers for going through trees and writing them out, for those who ask for it thousands of times a script.

The answers are those of `ast.walk`, `ast.iter_child_nodes` and `ast.unparse`, in the same order, but for the nodes that
say whether a name is read or set: nobody looks for these.
"""

from __future__ import annotations

import ast
from typing import TypeGuard

from accel_migrate.flow.once import once

_WITHOUT_NODES = frozenset(
    (
        "ctx", "id", "attr", "arg", "name", "asname", "module", "level", "kind", "type_comment", "lineno", "tag", "simple",
        "conversion", "is_async", "rest", "kwd_attrs",
    )
)  # fmt: skip
_LEAVES = (ast.Constant, ast.MatchSingleton, ast.Global, ast.Nonlocal)
_PLAIN = frozenset((str, int, bool, type(None)))
_PRIMARIES = frozenset((ast.Name, ast.Attribute, ast.Call, ast.Subscript))  # never in parentheses
_INDICES = _PRIMARIES | {ast.Constant}
_WITHOUT_BRACKETS = ast.unparse(ast.parse("(a, b)", mode="eval")) == "a, b"  # as newer Pythons write tuples
_WITH_HOLES = frozenset(("keys", "kw_defaults"))  # lists in which None stands for nothing


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    if issubclass(kind, _LEAVES):
        return ()
    # The name of a `type` statement is a node.
    return tuple(name for name in kind._fields if name not in _WITHOUT_NODES or kind.__name__ == "TypeAlias")


# The fields of each kind of node that may hold nodes, alone or in a list.
FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _fields(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)
}

# Those that hold statements, handlers or cases.
BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(n for n in ("body", "orelse", "finalbody", "handlers", "cases") if n in kind._fields) for kind in FIELDS
}

_WITH_BODIES = frozenset(kind for kind in FIELDS if "body" in kind._fields)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node."""
    found: list[ast.AST] = []
    for name in FIELDS[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [each for each in value if each is not None] if name in _WITH_HOLES else value
        elif value is not None:
            found.append(value)
    return found


def called_name(call: ast.Call) -> str:
    """The last name of what is called: `save` of `torch.save(...)` and of `save(...)`; empty for any other expression."""
    function = call.func
    if type(function) is ast.Attribute:
        return function.attr
    return function.id if type(function) is ast.Name else ""


class NameCall(ast.Call):
    """A call by a plain name, to type checkers alone: no node is of this class."""

    func: ast.Name


class MethodCall(ast.Call):
    """A call of a method, likewise."""

    func: ast.Attribute


def is_call_of(node: ast.AST | None, *names: str) -> TypeGuard[NameCall]:
    """Whether it is a call by one of these plain names: `len(x)`, and not `x.len()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def calls_method(node: ast.AST | None, *methods: str) -> TypeGuard[MethodCall]:
    """Whether it is a call of one of these methods, of whatever object."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods


def all_arguments(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, in order or by name."""
    return [*call.args, *[keyword.value for keyword in call.keywords]]


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """What a call is given by a name."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def arguments_at(call: ast.Call, place: int, name: str) -> list[ast.expr]:
    """What a call is given at a place or by a name; empty where it is given nothing there."""
    return [*call.args[place : place + 1], *[keyword.value for keyword in call.keywords if keyword.arg == name]]


def positional_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Those that a call may fill in turn."""
    return [*function.args.posonlyargs, *function.args.args]


def own_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Those that a call fills one by one, in turn or by name."""
    return [*positional_parameters(function), *function.args.kwonlyargs]


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def opposite(test: ast.expr) -> ast.expr:
    """A condition turned round, without a `not` where that can be helped."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    if isinstance(test, ast.BoolOp) and all(isinstance(part, ast.UnaryOp | ast.Compare) for part in test.values):
        return ast.BoolOp(
            ast.And() if isinstance(test.op, ast.Or) else ast.Or(), [opposite(part) for part in test.values]
        )
    return ast.UnaryOp(ast.Not(), test)


@once
def own_statements(scope: ast.AST) -> list[ast.stmt]:
    """The statements that run with a scope, those of its blocks included, without functions and classes in it."""
    found: list[ast.stmt] = []
    pending: list[ast.AST] = list(scope.body)  # type: ignore[attr-defined]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.stmt):
            found.append(node)
        pending += [c for c in children(node) if isinstance(c, ast.stmt | ast.excepthandler | ast.match_case)]
    return found


def picked(value: ast.expr, path: tuple[int, ...]) -> ast.expr:
    """What is taken out of a tuple or a list that is written down: `0` for `b` of `a, b = 1, 0`."""
    for index in path:
        if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
            value = value.elts[index]
    return value


def is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_zero(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def is_falsy(node: ast.AST | None) -> bool:
    """A constant that does not hold: `False`, `None`, `0`, an empty text."""
    return isinstance(node, ast.Constant) and not node.value


def is_text(statement: ast.AST) -> bool:
    """A docstring, or another text that stands alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# The parts of each kind of expression whose values its own is made of, or holds.
_HOLDS: dict[type[ast.expr], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"), ast.BoolOp: ("values",), ast.UnaryOp: ("operand",), ast.IfExp: ("body", "orelse"),
    ast.Subscript: ("value",), ast.Starred: ("value",), ast.NamedExpr: ("value",), ast.Await: ("value",),
    ast.List: ("elts",), ast.Tuple: ("elts",), ast.Set: ("elts",), ast.Dict: ("values",), ast.DictComp: ("value",),
    ast.ListComp: ("elt",), ast.SetComp: ("elt",), ast.GeneratorExp: ("elt",),
}  # fmt: skip


def parts_of_value(node: ast.expr) -> list[ast.expr]:
    """The expressions whose values an expression is made of, or holds: not what a call gives, nor what is only asked."""
    parts = [getattr(node, name) for name in _HOLDS.get(type(node), ())]
    return [each for part in parts for each in (part if isinstance(part, list) else [part])]


def operands(node: ast.AST) -> list[ast.expr]:
    """The expressions right below one that its value may depend on, with what is called; of a comprehension, what it reads."""
    found: list[ast.expr] = []
    for child in children(node):
        if isinstance(child, ast.expr):
            found.append(child)
        elif isinstance(child, ast.comprehension):
            found.append(child.iter)
        elif isinstance(child, ast.keyword):
            found.append(child.value)
    return found


def conjuncts(test: ast.expr) -> list[ast.expr]:
    """The conditions that must all hold: those of an `and`, or the one."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def assignment_of(statement: ast.stmt) -> ast.Assign | None:
    """`x = value`, also where it is written with an annotation."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
    return statement if isinstance(statement, ast.Assign) else None


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, level by level; nobody may change the list."""
    return _long_walk(node) if type(node) in _WITH_BODIES else _walk(node)


@once
def _long_walk(node: ast.AST) -> list[ast.AST]:
    return _walk(node)


def _walk(node: ast.AST) -> list[ast.AST]:
    found = [node]
    for each in found:
        for name in FIELDS[type(each)]:
            value = getattr(each, name, None)
            if type(value) is list:
                found += [one for one in value if one is not None] if name in _WITH_HOLES else value
            elif value is not None:
                found.append(value)
    return found


def unparse(node: ast.AST) -> str:
    """The code of a node; `ast.unparse`, which is slow, is asked only for what may need parentheses."""
    if type(node) is ast.Name:
        return node.id
    if type(node) is ast.Constant and type(node.value) in _PLAIN and node.kind is None:
        return repr(node.value)
    if type(node) is ast.Attribute and type(node.value) in _PRIMARIES:
        return f"{unparse(node.value)}.{node.attr}"
    if type(node) is ast.Subscript and type(node.value) in _PRIMARIES and type(node.slice) in _INDICES:
        return f"{unparse(node.value)}[{unparse(node.slice)}]"
    return _long(node)


@once
def _long(node: ast.AST) -> str:
    if type(node) is ast.Call and type(node.func) in _PRIMARIES:
        given = [unparse(each) for each in node.args]
        given += [f"{'**' if k.arg is None else k.arg + '='}{unparse(k.value)}" for k in node.keywords]
        return f"{unparse(node.func)}({', '.join(given)})"
    if type(node) is ast.Tuple and len(node.elts) > 1 and all(type(each) in _INDICES for each in node.elts):
        items = ", ".join([unparse(each) for each in node.elts])
        return items if _WITHOUT_BRACKETS else f"({items})"
    if type(node) is ast.arguments and not (node.posonlyargs or node.vararg or node.kwonlyargs or node.kwarg):
        if not any(each.annotation for each in node.args):
            without = len(node.args) - len(node.defaults)
            defaults = [*[""] * without, *[f"={unparse(each)}" for each in node.defaults]]
            return ", ".join([f"{each.arg}{default}" for each, default in zip(node.args, defaults)])
    return ast.unparse(node)
