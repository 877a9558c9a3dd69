"""What names mean in one file: the scope that binds each, every read and binding, and where a name may be unbound.

Scopes are Python's: functions, lambdas, comprehensions and classes, whose names their methods do not see. A star
import, `exec` and `globals()` may bind anything; a name that nothing else binds is then taken as theirs.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from accel_migrate.flow.cfg import Graph, graph_of
from accel_migrate.flow.nodes import children, walk
from accel_migrate.flow.points import Point

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
BUILTINS = frozenset(dir(builtins)) | {
    "__file__",
    "__builtins__",
    "__path__",
    "__class__",
    "__module__",
    "__qualname__",
}
_RUN_LATER = frozenset((ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
_UNKNOWN_BINDERS = frozenset({"exec", "globals", "vars", "locals"})


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    name: str
    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)  # global or nonlocal
    parameters: frozenset[str] = frozenset()

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def runs_in_place(self) -> bool:
        """Whether its code runs where it stands: a class or a comprehension, not a function."""
        return type(self.node) not in _RUN_LATER

    @property
    def path(self) -> str:
        """The names of the scopes around, from the module inwards."""
        return f"{self.parent.path}.{self.name}" if self.parent is not None else self.name


class Read(NamedTuple):
    node: ast.Name
    scope: Scope
    statement: ast.AST  # a statement, an except handler or a case

    @property
    def name(self) -> str:
        return self.node.id


class Called(NamedTuple):
    node: ast.Call
    scope: Scope
    statement: ast.AST


class Variable(NamedTuple):
    scope: Scope
    name: str


@dataclass(slots=True)
class Events:
    """What one point does to names: first it binds `early` (walrus, a case), then it reads, then it binds."""

    reads: list[Read] = field(default_factory=list)
    early: list[tuple[str, Scope]] = field(default_factory=list)
    binds: list[tuple[str, Scope]] = field(default_factory=list)
    deletes: list[tuple[str, Scope]] = field(default_factory=list)


class Names:
    """The names of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.root = Scope(tree, None, "")
        self.scopes: list[Scope] = [self.root]
        self.scope_of: dict[ast.AST, Scope] = {tree: self.root}
        self.reads: list[Read] = []
        self.calls: list[Called] = []
        self.mentions: list[Read] = []  # in annotations, which need not be evaluated
        self.binds_unknown = False  # a star import, exec, globals(): any name of the module may be bound
        self._at: dict[ast.AST, Events] = {}
        self._then: dict[ast.AST, Events] = {}
        self._resolved: dict[tuple[str, Scope], Variable | None] = {}
        self._block(tree.body, self.root)

    # ---- questions

    def graph(self, scope: Scope) -> Graph:
        """The control flow around a scope: its own, or that of the scope in which a class or comprehension runs."""
        while scope.runs_in_place and scope.parent is not None:
            scope = scope.parent
        return graph_of(self.tree, scope.node)  # type: ignore[arg-type]

    def resolve(self, name: str, scope: Scope) -> Variable | None:
        """The variable that a name means; None for a builtin and for what nothing here binds."""
        if (name, scope) not in self._resolved:
            self._resolved[name, scope] = self._resolve(name, scope)
        return self._resolved[name, scope]

    def _resolve(self, name: str, scope: Scope) -> Variable | None:
        seen: Scope | None = scope
        while seen is not None:
            declared = seen.declared.get(name)
            if declared == "global":
                return Variable(self.root, name) if name in self.root.bound else None
            if name in seen.bound and not declared and (seen is scope or not seen.is_class):
                return Variable(seen, name)
            # What stands in a class is not seen from its methods, but from its comprehensions' first iterable it is.
            seen = seen.parent
        return None

    def is_undefined(self, read: Read) -> bool:
        """Whether nothing at all binds what is read."""
        return not self.binds_unknown and read.name not in BUILTINS and self.resolve(read.name, read.scope) is None

    def events(self, point: Point) -> Events | None:
        """What happens to names at a point of a graph."""
        if point.part in ("target", "bound", "forgotten"):
            return self._then.get(point.node)
        if point.part == "test" and isinstance(point.node, ast.For | ast.AsyncFor):
            return None
        return None if point.part in ("raised", "entry", "exit") else self._at.get(point.node)

    @cached_property
    def reads_of(self) -> dict[Variable, list[Read]]:
        """Every read and mention of each variable."""
        found: dict[Variable, list[Read]] = {}
        for read in (*self.reads, *self.mentions):
            variable = self.resolve(read.name, read.scope)
            if variable is not None:
                found.setdefault(variable, []).append(read)
        return found

    @cached_property
    def bound_elsewhere(self) -> set[Variable]:
        """Variables that another scope binds by `global` or `nonlocal`: when, the order of statements does not tell."""
        found: set[Variable] = set()
        for scope in self.scopes:
            for name in scope.declared:
                if name in scope.bound and (variable := self.resolve(name, scope)) is not None:
                    found.add(variable)
        return found

    # ---- statements, in one walk

    def _block(self, statements: list[ast.stmt], scope: Scope) -> None:
        for statement in statements:
            visit = _STATEMENTS.get(type(statement))
            if visit is not None:
                visit(self, statement, scope)
            else:
                self._expressions(statement, scope, self._new(statement), statement)

    def _new(self, node: ast.AST) -> Events:
        events = self._at[node] = Events()
        return events

    def _bind(self, name: str, node: ast.AST, scope: Scope, into: list[tuple[str, Scope]]) -> None:
        home = scope
        if scope.declared.get(name) == "global":
            home = self.root
        elif scope.declared.get(name) == "nonlocal":
            variable = self.resolve(name, scope)
            home = variable.scope if variable is not None else scope
        scope.bound.setdefault(name, []).append(node)
        if home is not scope:
            home.bound.setdefault(name, []).append(node)
        into.append((name, home))

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: Scope) -> None:
        events = self._new(node)
        if node.value is not None:
            self._expression(node.value, scope, events, node)
        if isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation, scope, node)
            if node.value is None:
                if isinstance(node.target, ast.Name):
                    scope.bound.setdefault(node.target.id, [])  # makes it local, and binds nothing
                return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(node, ast.AugAssign) and isinstance(target, ast.Name):
                self._read(target, scope, events, node)
            self._target(target, scope, events, events.binds, node)

    def _target(
        self, target: ast.expr, scope: Scope, events: Events, into: list[tuple[str, Scope]], owner: ast.AST
    ) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, target, scope, into)
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._target(item, scope, events, into, owner)
        elif isinstance(target, ast.Starred):
            self._target(target.value, scope, events, into, owner)
        else:
            self._expression(target, scope, events, owner)

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        events = self._new(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._read(target, scope, events, node)
                scope.bound.setdefault(target.id, [])
                events.deletes.append((target.id, self.root if target.id in scope.declared else scope))
            else:
                self._expression(target, scope, events, node)

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        self._expression(node.iter, scope, self._new(node), node)
        then = self._then[node] = Events()
        self._target(node.target, scope, then, then.binds, node)
        self._block(node.body, scope)
        self._block(node.orelse, scope)

    def _branch(self, node: ast.If | ast.While, scope: Scope) -> None:
        self._expression(node.test, scope, self._new(node), node)
        self._block(node.body, scope)
        self._block(node.orelse, scope)

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        events = self._new(node)
        into = events.binds if len(node.items) == 1 else events.early  # a later item may read what an earlier one binds
        for item in node.items:
            self._expression(item.context_expr, scope, events, node)
            if item.optional_vars is not None:
                self._target(item.optional_vars, scope, events, into, node)
        self._block(node.body, scope)

    def _try(self, node: ast.Try, scope: Scope) -> None:
        self._block(node.body, scope)
        for handler in node.handlers:
            events = self._new(handler)
            if handler.type is not None:
                self._expression(handler.type, scope, events, handler)
            if handler.name:
                self._bind(handler.name, handler, scope, events.binds)
                self._then[handler] = Events(deletes=[(handler.name, scope)])
            self._block(handler.body, scope)
        self._block(node.orelse, scope)
        self._block(node.finalbody, scope)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        self._expression(node.subject, scope, self._new(node), node)
        for case in node.cases:
            events = self._new(case)
            for part in walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self._bind(name, part, scope, events.early)
                elif isinstance(part, ast.MatchValue):
                    self._expression(part.value, scope, events, case)
                elif isinstance(part, ast.MatchClass):
                    self._expression(part.cls, scope, events, case)
            if case.guard is not None:
                self._expression(case.guard, scope, events, case)
            self._block(case.body, scope)

    def _import(self, node: ast.Import, scope: Scope) -> None:
        events = self._new(node)
        for alias in node.names:
            self._bind(alias.asname or alias.name.split(".")[0], alias, scope, events.binds)

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        events = self._new(node)
        for alias in node.names:
            if alias.name == "*":
                self.binds_unknown = True
            else:
                self._bind(alias.asname or alias.name, alias, scope, events.binds)

    def _global(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            scope.declared[name] = "global" if isinstance(node, ast.Global) else "nonlocal"

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        events = self._new(node)
        for decorator in node.decorator_list:
            self._expression(decorator, scope, events, node)
        if node.returns is not None:
            self._annotation(node.returns, scope, node)
        self._bind(node.name, node, scope, events.binds)
        self._open(node, node.name, scope, events, node)
        self._block(node.body, self.scope_of[node])

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        events = self._new(node)
        for part in (*node.decorator_list, *node.bases, *[keyword.value for keyword in node.keywords]):
            self._expression(part, scope, events, node)
        then = self._then[node] = Events()
        self._bind(node.name, node, scope, then.binds)
        inner = self.scope_of[node] = Scope(node, scope, node.name)
        self.scopes.append(inner)
        self._block(node.body, inner)

    def _open(self, node: Function, name: str, scope: Scope, events: Events, owner: ast.AST) -> None:
        """A function's own scope, with its parameters; defaults are read outside."""
        arguments = node.args
        inner = self.scope_of[node] = Scope(node, scope, name)
        self.scopes.append(inner)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._expression(default, scope, events, owner)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
        for each in every:
            inner.bound[each.arg] = [each]
            if each.annotation is not None:
                self._annotation(each.annotation, scope, owner)
        inner.parameters = frozenset(inner.bound)

    # ---- expressions

    def _read(self, node: ast.Name, scope: Scope, events: Events, owner: ast.AST) -> None:
        read = Read(node, scope, owner)
        self.reads.append(read)
        events.reads.append(read)

    def _annotation(self, node: ast.expr, scope: Scope, owner: ast.AST) -> None:
        for part in walk(node):
            if isinstance(part, ast.Name):
                self.mentions.append(Read(part, scope, owner))

    def _expressions(self, node: ast.AST, scope: Scope, events: Events, owner: ast.AST) -> None:
        for child in children(node):
            self._expression(child, scope, events, owner)

    def _expression(self, node: ast.AST, scope: Scope, events: Events, owner: ast.AST) -> None:
        waiting = [node]
        while waiting:
            node = waiting.pop()
            kind = type(node)
            if kind is ast.Name:
                self._read(node, scope, events, owner)  # type: ignore[arg-type]
            elif kind is ast.Attribute:
                waiting.append(node.value)  # type: ignore[attr-defined]
            elif kind is ast.Call:
                function = node.func  # type: ignore[attr-defined]
                if type(function) is ast.Name and function.id in _UNKNOWN_BINDERS:
                    self.binds_unknown = True
                self.calls.append(Called(node, scope, owner))  # type: ignore[arg-type]
                waiting += node.args  # type: ignore[attr-defined]
                waiting += [keyword.value for keyword in node.keywords]  # type: ignore[attr-defined]
                waiting.append(function)
            elif kind in _LEAVES:
                continue
            elif kind is ast.NamedExpr:
                home = scope
                while home.parent is not None and isinstance(home.node, _COMPREHENSIONS):
                    home = home.parent
                self._bind(node.target.id, node, home, events.early)  # type: ignore[attr-defined]
                waiting.append(node.value)  # type: ignore[attr-defined]
            elif kind is ast.Lambda:
                self._open(node, "<lambda>", scope, events, owner)  # type: ignore[arg-type]
                self._expression(node.body, self.scope_of[node], Events(), owner)  # type: ignore[attr-defined]
            elif kind in _COMPREHENSION_KINDS:
                self._comprehension(node, scope, events, owner)
            else:
                waiting += children(node)

    def _comprehension(self, node: ast.AST, scope: Scope, events: Events, owner: ast.AST) -> None:
        inner = self.scope_of[node] = Scope(node, scope, "<comprehension>")
        self.scopes.append(inner)
        for index, generator in enumerate(node.generators):  # type: ignore[attr-defined]
            self._expression(generator.iter, inner if index else scope, events, owner)
            self._target(generator.target, inner, events, [], owner)
            for condition in generator.ifs:
                self._expression(condition, inner, events, owner)
        for part in ("elt", "key", "value"):
            if (made := getattr(node, part, None)) is not None:
                self._expression(made, inner, events, owner)


def exported(tree: ast.Module) -> set[str]:
    """What `__all__` hands on."""
    return {
        node.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        if statement.targets[0].id == "__all__"
        for node in walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPREHENSION_KINDS = frozenset(_COMPREHENSIONS)
_LEAVES = frozenset({ast.Constant, ast.Load, ast.Store, ast.Del})
_STATEMENTS: dict[type, Callable[[Names, Any, Scope], None]] = {  # each takes the statement of its own kind
    ast.Assign: Names._assign,
    ast.AnnAssign: Names._assign,
    ast.AugAssign: Names._assign,
    ast.Delete: Names._delete,
    ast.For: Names._for,
    ast.AsyncFor: Names._for,
    ast.If: Names._branch,
    ast.While: Names._branch,
    ast.With: Names._with,
    ast.AsyncWith: Names._with,
    ast.Try: Names._try,
    ast.TryStar: Names._try,
    ast.Match: Names._match,
    ast.Import: Names._import,
    ast.ImportFrom: Names._import_from,
    ast.Global: Names._global,
    ast.Nonlocal: Names._global,
    ast.FunctionDef: Names._function,
    ast.AsyncFunctionDef: Names._function,
    ast.ClassDef: Names._class,
}
