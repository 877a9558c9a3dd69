"""What happens to names in one file, statement by statement: every read, every binding, every call.

What a name means is the Module's answer. A star import, `exec` and `globals()` may bind anything; a name that nothing else
binds is then taken as theirs.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from accel_migrate.flow.nodes import walk
from accel_migrate.flow.once import once
from accel_migrate.flow.points import Point
from accel_migrate.flow.scopes import STATEMENTS, Binding, Module, Scope, Variable

BUILTINS = frozenset(dir(builtins)) | {
    "__file__",
    "__builtins__",
    "__path__",
    "__class__",
    "__module__",
    "__qualname__",
}
LATER_PARTS = frozenset(("target", "bound", "forgotten"))
_LOOPS = frozenset((ast.For, ast.AsyncFor))
_OWNERS = frozenset((*STATEMENTS, ast.ExceptHandler, ast.match_case))
_UNKNOWN_BINDERS = frozenset({"exec", "globals", "vars", "locals"})


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


@dataclass(slots=True)
class Events:
    """What one point does to names: first it binds `early` (walrus, a case), then it reads, then it binds."""

    reads: list[Read] = field(default_factory=list)
    early: list[Variable] = field(default_factory=list)
    binds: list[Variable] = field(default_factory=list)
    deletes: list[Variable] = field(default_factory=list)


class Names:
    """The names of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.root = module.root
        self.scopes = list(module.scopes.values())
        self.resolve = module.resolve
        self.reads: list[Read] = []
        self.mentions: list[Read] = []  # in annotations, which need not be evaluated
        self.calls = [Called(call, module.scope_of[call], owner_of(module, call)) for call in module.calls]
        named = {call.func.id for call in module.calls if isinstance(call.func, ast.Name)}
        self.binds_unknown = bool(module.stars) or not named.isdisjoint(_UNKNOWN_BINDERS)  # any name may be bound
        self._at: dict[ast.AST, Events] = {}
        self._then: dict[ast.AST, Events] = {}
        self._find_reads(module)
        for scope in self.scopes:
            for name, bindings in scope.bindings.items():
                for binding in bindings:
                    self._bind(binding, Variable(scope, name))

    # ---- questions

    def is_undefined(self, read: Read) -> bool:
        """Whether nothing at all binds what is read."""
        return not self.binds_unknown and read.name not in BUILTINS and self.resolve(read.name, read.scope) is None

    def events(self, point: Point) -> Events | None:
        """What happens to names at a point of a graph."""
        if point.part in LATER_PARTS:
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
        declared = [(scope, self.resolve(name, scope)) for scope in self.scopes for name in scope.outer_names]
        return {
            variable
            for scope, variable in declared
            if variable is not None
            if any(self.module.scope(binding.target) is scope for binding in self.module.bindings(variable))
        }

    # ---- what each statement does

    def _find_reads(self, module: Module) -> None:
        mentioned = {part for node in _annotations(module) for part in module.walk(node, ast.Name)}
        for node in module.walk(module.tree, ast.Name):
            if type(node.ctx) is ast.Store and type(module.parents[node]) is not ast.AugAssign:
                continue
            owner = owner_of(module, node)
            read = Read(node, module.scope_of[node], owner)
            if node in mentioned:
                self.mentions.append(read)
                continue
            self.reads.append(read)
            if type(read.scope.frame.node) is not ast.Lambda:  # which reads when it is called
                later = type(owner) in _LOOPS and module.holds(owner.target, node)  # type: ignore[attr-defined]
                events = self._of(self._then if later else self._at, owner)
                events.reads.append(read)
                if type(owner) is ast.Delete and node in owner.targets:
                    variable = self.resolve(node.id, read.scope)
                    events.deletes += [variable] if variable is not None else []

    def _of(self, found: dict[ast.AST, Events], node: ast.AST) -> Events:
        if node not in found:
            found[node] = Events()
        return found[node]

    def _bind(self, binding: Binding, variable: Variable) -> None:
        if binding.kind in ("parameter", "comprehension"):
            return
        node = owner_of(self.module, binding.target)
        match binding.kind:
            case _ if binds_later(binding):
                self._of(self._then, node).binds.append(variable)
            case "except":
                self._of(self._at, node).binds.append(variable)
                self._of(self._then, node).deletes.append(variable)
            case _:
                events = self._of(self._at, node)
                early = type(node) is ast.match_case or type(self.module.parents[binding.target]) is ast.NamedExpr
                if isinstance(node, ast.With | ast.AsyncWith) and len(node.items) > 1:
                    early = True  # a later item may read what an earlier one binds
                (events.early if early else events.binds).append(variable)


@once
def names_of(module: Module) -> Names:
    """The names of a file: all who read it ask for them."""
    return Names(module)


def binds_later(binding: Binding) -> bool:
    """Whether a name is bound after the head of its statement has run: by a loop in each round, by a class at its end."""
    return binding.kind == "for" or type(binding.target) is ast.ClassDef


def owner_of(module: Module, node: ast.AST) -> ast.AST:
    """The statement, handler or case at which a node is evaluated."""
    while type(node) not in _OWNERS:
        node = module.parents[node]
    return node


@once
def calls_at(module: Module) -> dict[ast.AST, list[ast.Call]]:
    """The calls of a file by the statement, handler or case at which they run."""
    found: dict[ast.AST, list[ast.Call]] = {}
    for call in module.calls:
        found.setdefault(owner_of(module, call), []).append(call)
    return found


def _annotations(module: Module) -> list[ast.expr]:
    found = [node.annotation for node in module.walk(module.tree, ast.arg, ast.AnnAssign)]
    found += [function.returns for function in module.walk(module.tree, ast.FunctionDef, ast.AsyncFunctionDef)]
    return [each for each in found if each is not None]


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
