"""The files of a project as one program: scopes and what their names mean, through imports and from file to file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from accel_migrate.flow.lookup import import_roots
from accel_migrate.flow.nodes import FIELDS

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
N = TypeVar("N", bound=ast.AST)
_COMPREHENSIONS = frozenset((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
_OPENERS = _COMPREHENSIONS | {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
_BINDERS = frozenset(
    (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
)


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class, function, lambda or comprehension, with the names that it binds."""

    node: ast.AST
    parent: Scope | None
    file: File
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)  # declared global or nonlocal here
    is_class: bool = field(init=False)
    function: Scope = field(init=False, repr=False)  # the innermost function around, or the module
    method_of: Scope | None = field(init=False, repr=False)  # the class whose method this is, or is nested in

    def __post_init__(self) -> None:
        self.is_class = isinstance(self.node, ast.ClassDef)
        self.function = self if self.parent is None or isinstance(self.node, Function) else self.parent.function
        around = self.parent
        is_method = (
            around is not None and around.is_class and isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        self.method_of = around if is_method or around is None else around.method_of


class File:
    """One parsed file: its scopes, the parent of each node, what its imported names stand for."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # of the nodes that open one
        self.imports: dict[str, str] = {}
        self.imported_in: dict[str, set[Scope]] = {}  # the scopes in which imports bind a name
        self.stars: list[str] = []  # modules of which all names are imported
        self.nodes: list[ast.AST] = []
        self._places: dict[type, list[int]] = {}  # in the list of nodes
        self._of_kinds: dict[tuple[type, ...], list[Any]] = {}
        self._qualified: dict[ast.AST, str | None] = {}
        self.root = Scope(tree, None, self)
        self.scopes[tree] = self.root
        self._home: dict[ast.AST, Scope] = {tree: self.root}
        for statement in tree.body:
            self._visit(statement, tree, self.root)
        for place, node in enumerate(self.nodes):
            self._places.setdefault(type(node), []).append(place)

    def of_kinds(self, *kinds: type[N]) -> list[N]:
        """The nodes of some kinds."""
        if kinds not in self._of_kinds:
            places = sorted(place for kind in kinds for place in self._places.get(kind, ()))
            self._of_kinds[kinds] = [self.nodes[place] for place in places]
        return self._of_kinds[kinds]

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a node is evaluated."""
        while node not in self._home:
            node = self.parents[node]
        return self._home[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def binder(self, name: str, scope: Scope) -> Scope | None:
        """The scope that a name belongs to where it is read; None for builtins and what a star import brings."""
        at: Scope | None = scope
        first = True
        while at is not None:
            if name in at.names and name not in at.outer and (first or not at.is_class):
                return at
            first = False
            at = at.parent
        return None

    def qualified(self, node: ast.AST) -> str | None:
        """The full dotted name of an imported thing: `optim.SGD` is `torch.optim.SGD`."""
        kind = type(node)
        if kind is ast.Name:
            return self.imports.get(node.id) if self._means_import(node) else None  # type: ignore[attr-defined, arg-type]
        if kind is not ast.Attribute:
            return None
        if node not in self._qualified:
            owner = self.qualified(node.value)  # type: ignore[attr-defined]
            self._qualified[node] = f"{owner}.{node.attr}" if owner is not None else None  # type: ignore[attr-defined]
        return self._qualified[node]

    def _means_import(self, name: ast.Name) -> bool:
        """Whether a name is not one that a function binds for itself: `def run(loader)` below `from data import loader`."""
        binder = self.binder(name.id, self._home[name]) if name.id in self.imports and name in self._home else None
        return binder is None or binder in self.imported_in.get(name.id, ())

    def _visit(self, node: ast.AST, parent: ast.AST, scope: Scope) -> None:
        self.parents[node] = parent
        self._home[node] = scope
        kind = type(node)
        if kind is ast.Constant:
            return
        self.nodes.append(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                self._bind_name(node, parent, scope)  # type: ignore[arg-type]
            return
        if kind in _OPENERS:
            if kind in _COMPREHENSIONS:
                self._comprehension(node, scope)  # type: ignore[arg-type]
            else:
                self._open(node, scope)  # type: ignore[arg-type]
            return
        if kind in _BINDERS:
            self._bind(node, scope)
        for name in FIELDS[kind]:
            value = getattr(node, name, None)
            if type(value) is list:
                for child in value:
                    if child is not None:
                        self._visit(child, node, scope)
            elif value is not None:
                self._visit(value, node, scope)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope) -> None:
        """The first iterable is evaluated outside, all else inside."""
        inner = Scope(node, scope, self)
        self.scopes[node] = inner
        for index, generator in enumerate(node.generators):
            self.parents[generator] = node
            self.nodes.append(generator)
            home = scope if index == 0 else inner
            self._visit(generator.iter, generator, home)
            self._visit(generator.target, generator, inner)
            for condition in generator.ifs:
                self._visit(condition, generator, inner)
        for made in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._visit(made, node, inner)

    def _open(self, node: Function | ast.ClassDef, scope: Scope) -> None:
        """Decorators, defaults and bases belong to the scope outside."""
        inner = Scope(node, scope, self)
        self.scopes[node] = inner
        if not isinstance(node, ast.Lambda):
            scope.names.add(node.name)
            for decorator in node.decorator_list:
                self._visit(decorator, node, scope)
        if isinstance(node, ast.ClassDef):
            for outside in (*node.bases, *[keyword.value for keyword in node.keywords]):
                self._visit(outside, node, scope)
        else:
            self.parents[node.args] = node
            for default in (*node.args.defaults, *[d for d in node.args.kw_defaults if d is not None]):
                self._visit(default, node.args, scope)
            for argument in parameters(node):
                self.parents[argument] = node.args
                inner.names.add(argument.arg)
        for statement in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self._visit(statement, node, inner)

    def _bind_name(self, node: ast.Name, parent: ast.AST, scope: Scope) -> None:
        if isinstance(parent, ast.NamedExpr):  # a walrus binds outside of comprehensions
            while type(scope.node) in _COMPREHENSIONS and scope.parent is not None:
                scope = scope.parent
        scope.names.add(node.id)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    self._bind_import(bound, scope)
                    self.imports[bound] = alias.name if alias.asname else bound
            case ast.ImportFrom():
                base = "." * node.level + (node.module or "")
                if node.names[0].name == "*":
                    self.stars.append(base)
                for alias in node.names:
                    bound = alias.asname or alias.name
                    self._bind_import(bound, scope)
                    self.imports[bound] = f"{base}{alias.name}" if base.endswith(".") else f"{base}.{alias.name}"
            case ast.Global() | ast.Nonlocal():
                scope.outer.update(node.names)
                if isinstance(node, ast.Global):
                    self.root.names.update(node.names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.names.add(name)

    def _bind_import(self, name: str, scope: Scope) -> None:
        scope.names.add(name)
        self.imported_in.setdefault(name, set()).add(self.root if name in scope.outer else scope)


def parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*every, *[a for a in (arguments.vararg, arguments.kwarg) if a is not None]]


def default_of(function: ast.AST, name: str) -> ast.expr | None:
    """The default of a parameter, where it has one."""
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in reversed(positional)], reversed(arguments.defaults)))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None}
    return defaults.get(name)


class Program:
    """All files together; a name that is imported from one of them leads there."""

    def __init__(self, trees: Iterable[tuple[Path, ast.Module]]) -> None:
        self.files = [File(path, tree) for path, tree in trees]
        self._by_name: dict[str, list[File]] = {}
        for file in self.files:
            parts = file.path.with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            for first in range(len(parts)):  # `pkg.engine` and `engine` may both mean pkg/engine.py
                self._by_name.setdefault(".".join(parts[first:]), []).append(file)
        for file in self.files:
            self._bring(file, file, frozenset())

    def _bring(self, file: File, through: File, seen: frozenset[File]) -> None:
        """What a star import brings of libraries: `torch`, which utils imports, of `from utils import *`."""
        for module in through.stars if through not in seen else ():
            found = self.locate(through, module)
            if found is not None and found[1] is None and "__all__" not in found[0].root.names:
                there = found[0]
                for name, dotted in there.imports.items():
                    if name in there.root.names and name not in file.root.names and not self.locate(there, dotted):
                        file.imports.setdefault(name, dotted)
                self._bring(file, there, seen | {through})

    def imported(self, file: File, name: str) -> tuple[File, str | None] | None:
        """The file, and the name in it, that an imported name of another file stands for."""
        dotted = file.imports.get(name)
        return self.locate(file, dotted) if dotted else None

    def starred(self, file: File, name: str) -> File | None:
        """The file whose names a star import brings, if this is one of them."""
        for module in file.stars:
            found = self.locate(file, module)
            if found is not None and found[1] is None:
                if name in found[0].root.names:
                    return found[0]
                further = self.starred(found[0], name) if found[0] is not file else None
                if further is not None:
                    return further
        return None

    def locate(self, file: File, dotted: str) -> tuple[File, str | None] | None:
        """The file of the project that a dotted name as `file` writes it leads to, and what is named in it."""
        level = len(dotted) - len(dotted.lstrip("."))
        rest = dotted.lstrip(".")
        if level:
            folder = file.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            rest = ".".join([*folder.parts, *([rest] if rest else [])])
        if rest in self._by_name:
            return self._nearest(file, rest), None
        module, _, name = rest.rpartition(".")
        return (self._nearest(file, module), name) if module in self._by_name and name else None

    def _nearest(self, file: File, dotted: str) -> File:
        """Of several files of one name, the one that Python finds first from the importing file."""
        found = self._by_name[dotted]
        if len(found) == 1:
            return found[0]
        inside = dotted.count(".")
        by_root = {_module_path(each).parents[inside]: each for each in reversed(found)}
        return next((by_root[root] for root in import_roots(file.path) if root in by_root), found[0])


def _module_path(file: File) -> Path:
    """The path of a file as a module: that of its folder for an `__init__.py`."""
    return file.path.parent if file.path.name == "__init__.py" else file.path
