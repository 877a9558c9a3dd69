"""Names of one file: scopes, what each name is bound to and where, and the parent of every node."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar, overload

from accel_migrate.flow.nodes import FIELDS
from accel_migrate.flow.once import Answers, leads_back
from accel_migrate.flow.public_names import public
from accel_migrate.source import Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
_NEW_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_ALIASED_MODULES = ("torch.nn", "torch.nn.functional", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data")
STATEMENTS = frozenset(ast.stmt.__subclasses__())
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
C = TypeVar("C", bound=ast.AST)


class Binding(NamedTuple):
    """One place where a name gets a value: `value` with `path` picked out of it, as in `a, (b, c) = value`."""

    statement: ast.stmt
    target: ast.AST
    value: ast.expr | None
    path: tuple[int, ...] = ()
    kind: str = "assign"  # assign, augment, for, with, parameter, import, definition, delete, comprehension, match

    @property
    def whole(self) -> ast.expr | None:
        """The value, unless the name gets only a part of it."""
        return None if self.path else self.value

    @property
    def assigned(self) -> ast.expr | None:
        """The value that an assignment gives the name as a whole."""
        return self.whole if self.kind == "assign" else None


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    module: Module
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer_names: dict[str, str] = field(default_factory=dict)  # declared global or nonlocal here
    is_class: bool = field(init=False)
    is_function: bool = field(init=False)
    function: Function | None = field(init=False)  # the innermost `def` around, itself included
    owner_class: Scope | None = field(init=False)  # the class whose method this is, or is nested in
    self_name: str | None = field(init=False)  # what methods call their instance, in this scope or the method around it
    instance: str | None = field(init=False)  # the same, but in class methods, whose first parameter is the class
    frame: Scope = field(init=False, repr=False)  # the innermost function or lambda around, or the module
    variables: Answers[str, Variable | None] = field(init=False, repr=False)  # what each name means here

    def __post_init__(self) -> None:
        self.variables = Answers(self._resolve)
        self.is_class = isinstance(self.node, ast.ClassDef)
        around = self.parent.function if self.parent is not None else None
        self.function = self.node if isinstance(self.node, Function) else around
        self.is_function = self.function is self.node
        own = self.parent is None or self.is_function or isinstance(self.node, ast.Lambda)
        self.frame = self if own or self.parent is None else self.parent.frame
        outer = self.parent
        if isinstance(self.node, Function) and outer is not None and outer.is_class:
            first = [*self.node.args.posonlyargs, *self.node.args.args][:1]
            decorators = {getattr(each, "id", "") for each in self.node.decorator_list}
            self.owner_class = outer
            self.self_name = first[0].arg if first and "staticmethod" not in decorators else None
            self.instance = self.self_name if "classmethod" not in decorators else None
        else:
            self.owner_class = outer.owner_class if outer is not None else None
            self.self_name = outer.self_name if outer is not None else None
            self.instance = outer.instance if outer is not None else None

    @property
    def name(self) -> str:
        if isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self.node.name
        return "" if self.parent is None else "<lambda>" if isinstance(self.node, ast.Lambda) else "<comprehension>"

    @cached_property
    def path(self) -> str:
        """The names of the scopes around, from the module inwards."""
        return f"{self.parent.path}.{self.name}" if self.parent is not None else ""

    def _resolve(self, name: str) -> Variable | None:
        seen: Scope | None = self
        while seen is not None:
            declared = seen.outer_names.get(name) if seen.outer_names and seen.parent is not None else None
            if declared == "global":
                root = self.module.root
                return Variable(root, name) if name in root.bindings else None
            if name in seen.bindings and (seen is self or not seen.is_class) and not declared:
                return Variable(seen, name)
            seen = seen.parent
        return None

    def bound(self, name: str) -> list[ast.AST]:
        """The nodes that bind a name: names, imports, parameters, definitions, handlers, patterns."""
        return [binding.target for binding in self.bindings.get(name, ())]

    @property
    def constructor(self) -> Function | None:
        """The `__init__` that a class has itself."""
        own = [each for each in getattr(self.node, "body", ()) if isinstance(each, Function)] if self.is_class else []
        return next((each for each in own if each.name == "__init__"), None)

    @cached_property
    def parameters(self) -> frozenset[str]:
        own = self.bindings.items() if self.frame is self else ()
        return frozenset(name for name, bound in own if any(binding.kind == "parameter" for binding in bound))


class Variable(NamedTuple):
    """A name in a scope. Attributes are dotted: `self.model` belongs to the class, `args.device` to args' scope."""

    scope: Scope
    name: str


class Module:
    """One parsed file with its scopes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tree = source.tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scope_of: dict[ast.AST, Scope] = {}
        self.imports: dict[str, str] = {}
        self.imported_in: dict[str, set[Scope]] = {}  # the scopes in which imports bind a name
        self.stars: list[str] = []  # modules of which all names are imported
        self.functions: dict[ast.AST, Scope] = {}
        self.classes: dict[ast.AST, Scope] = {}
        self.calls: list[ast.Call] = []
        self._nodes: list[ast.AST] = [self.tree]  # in reading order, so that a subtree is a slice
        self._spans: dict[ast.AST, tuple[int, int]] = {}
        self._places: dict[type, list[int]] = defaultdict(list)  # in the list of nodes
        self._of_kinds: dict[tuple[type, ...], tuple[list[int], list[ast.AST]]] = {}
        self._variables = Answers(self._own_variable)
        self._qualified = Answers(self._find_qualified)
        # These three are asked more often than all else, and so each is the look-up itself.
        self.scope: Callable[[ast.AST], Scope] = self.scope_of.__getitem__  # in which a node is evaluated
        self.variable: Callable[[ast.AST], Variable | None] = (
            self._variables.__getitem__
        )  # of a name, a dotted attribute
        # The full dotted name of an imported thing, as it is documented: `optim.sgd.SGD` is `torch.optim.SGD`.
        self.qualified: Callable[[ast.AST], str | None] = self._qualified.__getitem__
        self.root = Scope(self.tree, None, self)
        self.scopes: dict[ast.AST, Scope] = {self.tree: self.root}  # of all nodes that open one
        self.scope_of[self.tree] = self.root
        self.attribute_bindings: dict[Variable, list[Binding]] = {}
        self._pending_attributes: list[tuple[Scope, ast.Attribute, Binding]] = []
        for statement in self.tree.body:
            self._visit(statement, self.tree, self.root, statement)
        self._spans[self.tree] = (0, len(self._nodes))
        for place, kind in enumerate(map(type, self._nodes)):
            self._places[kind].append(place)
        for scope, attribute, binding in self._pending_attributes:
            variable = self._find_variable(attribute, scope)
            if variable is not None:
                self.attribute_bindings.setdefault(variable, []).append(binding)
        for each in (self, *self.scopes.values()):
            leads_back(vars(each))

    # ---- questions

    @property
    def path(self) -> Path:
        return self.source.path

    @overload
    def walk(self, node: ast.AST) -> list[ast.AST]: ...
    @overload
    def walk(self, node: ast.AST, one: type[A], /) -> list[A]: ...
    @overload
    def walk(self, node: ast.AST, one: type[A], other: type[B], /) -> list[A | B]: ...
    @overload
    def walk(self, node: ast.AST, one: type[A], other: type[B], third: type[C], /) -> list[A | B | C]: ...
    @overload
    def walk(self, node: ast.AST, *kinds: type[A]) -> list[A]: ...
    def walk(self, node: ast.AST, *kinds: type[ast.AST]) -> list[ast.AST]:  # type: ignore[misc]
        """A node and all below it, or those of some kinds; cheaper than `ast.walk`, because the walk was made once."""
        start, end = self._spans[node]
        if not kinds:
            return self._nodes[start:end]
        if kinds not in self._of_kinds:
            places = [] if len(kinds) > 1 else self._places.get(kinds[0], [])
            if len(kinds) > 1:
                for kind in kinds:
                    places += self._places.get(kind, ())
                places.sort()
            self._of_kinds[kinds] = places, list(map(self._nodes.__getitem__, places))
        places, nodes = self._of_kinds[kinds]
        return nodes[bisect_left(places, start) : bisect_left(places, end)]

    def holds(self, around: ast.AST, node: ast.AST) -> bool:
        """Whether a node is another, or is below it."""
        return self.spans(around, around, node)

    def position(self, node: ast.AST) -> int:
        """Where a node comes in the text, to sort by; which of two runs first, `flow.sequence` says."""
        return self._spans[node][0]

    def place_of(self, owner: Module, node: ast.AST) -> str:
        """`line 4`, or `other.py:4` of another file: where a node is, as seen from this one."""
        line = getattr(node, "lineno", 1)
        return f"line {line}" if owner is self else f"{owner.source.path.name}:{line}"

    def is_written_before(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether a node comes before another in the text."""
        return self.position(one) < self.position(other)

    def innermost(self, leaving: ast.Break | ast.Continue) -> ast.stmt:
        """The loop that a statement leaves, or of which it ends a round."""
        inner, loop = leaving, self.parents[leaving]
        while not isinstance(loop, ast.For | ast.AsyncFor | ast.While) or inner in loop.orelse:
            inner, loop = loop, self.parents[loop]  # type: ignore[assignment]
        return loop

    def spans(self, first: ast.AST, last: ast.AST, node: ast.AST) -> bool:
        """Whether a node is in one of some statements in a row; nothing of this file is in those of another."""
        spans = self._spans
        return node in spans and first in spans and spans[first][0] <= spans[node][0] < spans[last][1]

    def statement(self, node: ast.AST) -> ast.stmt:
        while type(node) not in STATEMENTS:
            node = self.parents[node]
        return node  # type: ignore[return-value]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def branches(self, node: ast.AST, beyond: bool = False) -> Iterator[tuple[ast.If | ast.IfExp, bool]]:
        """Each choice around a node in its function, or also beyond it, inmost first, and whether the node is where it holds."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not beyond:
                return
            if isinstance(parent, ast.If | ast.IfExp) and node is not parent.test:
                yield parent, node is parent.body or (isinstance(parent.body, list) and node in parent.body)
            node = parent

    def returned(self, function: ast.AST) -> list[ast.expr]:
        """The values that a function returns itself, and not one that is defined in it."""
        found = [node for node in self.walk(function, ast.Return) if self.scope(node).function is function]
        return [node.value for node in found if node.value is not None]

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that holds this one."""
        for value in ast.iter_fields(self.parents[statement]):
            if isinstance(value[1], list) and any(item is statement for item in value[1]):
                return value[1]
        raise LookupError(f"statement at line {statement.lineno} is in no block")

    def resolve(self, name: str, scope: Scope) -> Variable | None:
        """The variable that a name means in a scope; None for builtins, unknown names and what a star import brings."""
        return scope.variables[name]

    def binder(self, name: str, scope: Scope) -> Scope | None:
        """The scope that a name belongs to where it is read; None where it is no variable."""
        variable = scope.variables[name]
        return variable.scope if variable is not None else None

    def variable_in(self, node: ast.AST, scope: Scope) -> Variable | None:
        """The variable that a name or a dotted attribute would mean in another scope than its own."""
        return self._find_variable(node, scope)

    def _own_variable(self, node: ast.AST) -> Variable | None:
        known = type(node) is ast.Name or type(node) is ast.Attribute
        return self._find_variable(node, self.scope_of[node]) if known else None

    def _find_variable(self, node: ast.AST, scope: Scope) -> Variable | None:
        if type(node) is ast.Name:
            return scope.variables[node.id]
        parts: list[str] = []
        while type(node) is ast.Attribute:
            parts.append(node.attr)
            node = node.value
        if type(node) is not ast.Name:
            return None
        path = ".".join(reversed(parts))
        owner = scope.owner_class
        if owner is not None and node.id == scope.self_name:
            return Variable(owner, f"self.{path}")
        root = scope.variables[node.id]
        if root is None or self.is_import(root):
            return None
        return Variable(root.scope, f"{root.name}.{path}")

    def is_import(self, variable: Variable) -> bool:
        """Whether an import binds a name; a parameter of the same name is another variable."""
        bound = variable.scope.bindings.get(variable.name, ()) if variable.name in self.imports else ()
        return any(binding.kind == "import" for binding in bound)

    @cached_property
    def _calls_by_name(self) -> tuple[dict[str, list[ast.Call]], dict[str, list[ast.Call]]]:
        imported: dict[str, list[ast.Call]] = {}
        others: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            function, dotted = call.func, self.qualified(call.func)
            if dotted is not None:
                imported.setdefault(dotted, []).append(call)
            elif isinstance(function, ast.Attribute):
                others.setdefault(f".{function.attr}", []).append(call)
            elif isinstance(function, ast.Name):
                others.setdefault(function.id, []).append(call)
        return imported, others

    @property
    def imported_calls(self) -> dict[str, list[ast.Call]]:
        """The calls of each imported thing by its full name, in the order of their first calls."""
        return self._calls_by_name[0]

    def calls_of(self, names: Collection[str]) -> list[ast.Call]:
        """The calls of imported things (`torch.save`), of methods (`.mkdir`) and of other names (`open`), in reading order."""
        found = [known[name] for known in self._calls_by_name for name in known.keys() & names]
        if len(found) < 2:
            return found[0] if found else []
        return sorted([call for calls in found for call in calls], key=self.position)

    @cached_property
    def method_calls(self) -> dict[Variable, list[tuple[str, ast.Call]]]:
        """The calls of each variable's methods, with the method's name."""
        found: dict[Variable, list[tuple[str, ast.Call]]] = {}
        for call in self.calls:
            if isinstance(call.func, ast.Attribute) and (owner := self.variable(call.func.value)) is not None:
                found.setdefault(owner, []).append((call.func.attr, call))
        return found

    @cached_property
    def named(self) -> dict[Variable, list[ast.Name | ast.Attribute]]:
        """Where each variable is named, in reading order."""
        found: dict[Variable, list[ast.Name | ast.Attribute]] = {}
        for node in self.walk(self.tree, ast.Name, ast.Attribute):
            if (variable := self.variable(node)) is not None:
                found.setdefault(variable, []).append(node)
        return found

    def bound(self) -> Iterator[tuple[Variable, Binding]]:
        """Everything that this file binds: globals and names of functions, scope by scope, then attributes."""
        for scope in (self.root, *self.functions.values()):
            for name, bindings in scope.bindings.items():
                yield from ((Variable(scope, name), binding) for binding in bindings)
        for variable, bindings in self.attribute_bindings.items():
            yield from ((variable, binding) for binding in bindings)

    def reads(self, variable: Variable | None) -> list[ast.Name | ast.Attribute]:
        """Where a variable is read, in reading order; what is no variable, nowhere."""
        named = self.named.get(variable, []) if variable is not None else []
        return [node for node in named if isinstance(node.ctx, ast.Load)]

    @cached_property
    def items_set(self) -> dict[Variable, list[ast.expr]]:
        """What is put under a key or an index of each variable: `value` of `held[key] = value`."""
        found: dict[Variable, list[ast.expr]] = {}
        for node in self.walk(self.tree, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and (owner := self.variable(target.value)) is not None:
                found.setdefault(owner, []).append(node.value)
        return found

    def bindings(self, variable: Variable | None) -> list[Binding]:
        """What a variable is bound to in this file; what is no variable, to nothing."""
        if variable is None:
            return []
        if "." in variable.name:
            return self.attribute_bindings.get(variable, [])
        return variable.scope.bindings.get(variable.name, [])

    def is_parameter(self, variable: Variable | None) -> bool:
        """Whether a variable is, also or only, what a function is handed."""
        return any(binding.kind == "parameter" for binding in self.bindings(variable))

    def held(self, node: ast.expr) -> list[ast.expr | None]:
        """What a name or a dotted attribute is bound to; any other expression is itself."""
        variable = self.variable(node)
        return [node] if variable is None else [binding.value for binding in self.bindings(variable)]

    def only_value(self, node: ast.AST) -> ast.expr | None:
        """What a name or a dotted attribute is bound to, where that is one value in this file."""
        bindings = self.bindings_of(node)
        return bindings[0].whole if len(bindings) == 1 else None

    def bindings_of(self, node: ast.AST) -> list[Binding]:
        """What the variable behind a name or a dotted attribute is bound to in this file."""
        return self.bindings(self.variable(node))

    def full_name(self, node: ast.AST) -> str:
        """The full dotted name of an imported thing as a text, which is empty where nothing imported is named."""
        return self.qualified(node) or ""

    def _find_qualified(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        while type(node) is ast.Attribute:
            parts.append(node.attr)
            node = node.value
        if type(node) is not ast.Name:
            return None
        base = self.imports.get(node.id)
        if base is None:
            return None
        variable = self.scope_of[node].variables[node.id]
        if variable is None or any(not _may_be_import(b) for b in variable.scope.bindings[variable.name]):
            return None  # shadowed: here the name is not the imported thing
        return public(".".join([base, *reversed(parts)]))

    # ---- construction, one walk

    def _visit(self, node: ast.AST, parent: ast.AST, scope: Scope, statement: ast.stmt) -> None:
        self.parents[node] = parent
        self.scope_of[node] = scope
        first = len(self._nodes)
        self._nodes.append(node)
        kind = type(node)
        if kind is ast.Name or kind is ast.Constant:
            self._spans[node] = (first, first + 1)
            return
        if kind in STATEMENTS:
            statement = node  # type: ignore[assignment]
        if kind is ast.Call:
            self.calls.append(node)  # type: ignore[arg-type]
        binds = _BINDERS.get(kind)
        if binds is not None:
            getattr(self, binds)(node, scope, statement)
        if kind in _SCOPED:
            self.scopes[node] = Scope(node, scope, self)
            self._open(node, self.scopes[node], scope, statement)
        else:
            for name in FIELDS[kind]:
                value = getattr(node, name, None)
                if type(value) is list:
                    for child in value:
                        if child is not None:
                            self._visit(child, node, scope, statement)
                elif value is not None:
                    self._visit(value, node, scope, statement)
        self._spans[node] = (first, len(self._nodes))

    def _open(self, node: ast.AST, inner: Scope, outer: Scope, statement: ast.stmt) -> None:
        """Visit the children of a node that opens a scope; defaults, decorators and bases belong outside."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions[node] = inner
            for outside in (*node.decorator_list, *([node.returns] if node.returns is not None else ())):
                self._visit(outside, node, outer, statement)
            self._arguments(node.args, node, inner, outer, node)
            for child in node.body:
                self._visit(child, node, inner, child)
        elif isinstance(node, ast.Lambda):
            self._arguments(node.args, node, inner, outer, statement)
            self._visit(node.body, node, inner, statement)
        elif isinstance(node, ast.ClassDef):
            self.classes[node] = inner
            for outside in (*node.decorator_list, *node.bases, *node.keywords):
                self._visit(outside, node, outer, statement)
            for child in node.body:
                self._visit(child, node, inner, child)
        else:
            generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
            for index, generator in enumerate(generators):
                self.parents[generator] = node
                self.scope_of[generator] = outer
                first = len(self._nodes)
                self._nodes.append(generator)
                self._visit(generator.iter, generator, outer if index == 0 else inner, statement)
                self._bind(generator.target, generator.iter, inner, statement, (), "comprehension")
                self._visit(generator.target, generator, inner, statement)
                for condition in generator.ifs:
                    self._visit(condition, generator, inner, statement)
                self._spans[generator] = (first, len(self._nodes))
            for part in ("elt", "key", "value"):
                made = getattr(node, part, None)
                if made is not None:
                    self._visit(made, node, inner, statement)

    def _arguments(
        self, arguments: ast.arguments, parent: ast.AST, inner: Scope, outer: Scope, statement: ast.stmt
    ) -> None:
        self.parents[arguments] = parent
        self.scope_of[arguments] = outer
        first = len(self._nodes)
        self._nodes.append(arguments)
        for default in (*arguments.defaults, *[d for d in arguments.kw_defaults if d is not None]):
            self._visit(default, arguments, outer, statement)
        self._parameters(arguments, inner, statement)
        self._spans[arguments] = (first, len(self._nodes))

    def _parameters(self, arguments: ast.arguments, scope: Scope, statement: ast.stmt) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        for argument in every:
            self.parents[argument] = arguments
            self.scope_of[argument] = self.scope_of[arguments]
            first = len(self._nodes)
            self._nodes.append(argument)
            scope.bindings.setdefault(argument.arg, []).append(Binding(statement, argument, None, (), "parameter"))
            if argument.annotation is not None:
                self._visit(argument.annotation, argument, scope.parent or scope, statement)
            self._spans[argument] = (first, len(self._nodes))

    def _bind(
        self,
        target: ast.expr,
        value: ast.expr | None,
        scope: Scope,
        statement: ast.stmt,
        path: tuple[int, ...] = (),
        kind: str = "assign",
    ) -> None:
        if isinstance(target, ast.Name):
            home = scope
            if kind in ("assign", "augment") and isinstance(scope.node, _COMPREHENSION):  # a walrus binds outside
                while isinstance(home.node, _COMPREHENSION) and home.parent is not None:
                    home = home.parent
            if home.outer_names.get(target.id) == "global":
                home = self.root
            elif target.id in home.outer_names:
                home = home.parent or home
                while home.parent is not None and (home.is_class or target.id not in home.bindings):
                    home = home.parent
            home.bindings.setdefault(target.id, []).append(Binding(statement, target, value, path, kind))
        elif isinstance(target, ast.Tuple | ast.List):
            if (
                kind == "assign"
                and isinstance(value, ast.Tuple | ast.List)
                and len(value.elts) == len(target.elts)
                and not any(isinstance(e, ast.Starred) for e in (*value.elts, *target.elts))
            ):
                for item, part in zip(target.elts, value.elts):
                    self._bind(item, part, scope, statement, (), kind)
                return
            for index, item in enumerate(target.elts):
                self._bind(item, value, scope, statement, (*path, index), kind)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None, scope, statement, path, kind)
        elif isinstance(target, ast.Attribute):
            self._pending_attributes.append((scope, target, Binding(statement, target, value, path, kind)))

    def _bind_Assign(self, node: ast.Assign, scope: Scope, statement: ast.stmt) -> None:
        target = node.targets[0]
        alias = self._alias(node.value) if isinstance(target, ast.Name) and len(node.targets) == 1 else None
        if alias is not None and isinstance(target, ast.Name) and target.id not in scope.bindings:
            self.imports[target.id] = alias  # `nn = torch.nn`
            scope.bindings[target.id] = [Binding(statement, target, node.value, (), "import")]
            return
        for target in node.targets:
            self._bind(target, node.value, scope, statement)

    def _alias(self, value: ast.expr) -> str | None:
        """The imported module that `torch.nn` or `torch.optim.lr_scheduler` names, if that is all it is."""
        parts: list[str] = []
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if not parts or not isinstance(value, ast.Name) or value.id not in self.imports:
            return None
        dotted = ".".join([self.imports[value.id], *reversed(parts)])
        return dotted if dotted in _ALIASED_MODULES else None

    def _bind_AnnAssign(self, node: ast.AnnAssign, scope: Scope, statement: ast.stmt) -> None:
        if node.value is not None:
            self._bind(node.target, node.value, scope, statement)

    def _bind_AugAssign(self, node: ast.AugAssign, scope: Scope, statement: ast.stmt) -> None:
        self._bind(node.target, None, scope, statement, (), "augment")

    def _bind_NamedExpr(self, node: ast.NamedExpr, scope: Scope, statement: ast.stmt) -> None:
        self._bind(node.target, node.value, scope, statement)

    def _bind_For(self, node: ast.For | ast.AsyncFor, scope: Scope, statement: ast.stmt) -> None:
        self._bind(node.target, node.iter, scope, statement, (), "for")

    _bind_AsyncFor = _bind_For

    def _bind_withitem(self, node: ast.withitem, scope: Scope, statement: ast.stmt) -> None:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr, scope, statement, (), "with")

    def _bind_FunctionDef(self, node: Function, scope: Scope, statement: ast.stmt) -> None:
        scope.bindings.setdefault(node.name, []).append(Binding(statement, node, None, (), "definition"))

    _bind_AsyncFunctionDef = _bind_FunctionDef

    def _bind_ClassDef(self, node: ast.ClassDef, scope: Scope, statement: ast.stmt) -> None:
        scope.bindings.setdefault(node.name, []).append(Binding(statement, node, None, (), "definition"))

    def _bind_ExceptHandler(self, node: ast.ExceptHandler, scope: Scope, statement: ast.stmt) -> None:
        if node.name:
            scope.bindings.setdefault(node.name, []).append(Binding(statement, node, None, (), "except"))

    def _bind_MatchAs(self, node: ast.MatchAs | ast.MatchStar, scope: Scope, statement: ast.stmt) -> None:
        if node.name is not None:
            scope.bindings.setdefault(node.name, []).append(Binding(statement, node, None, (), "match"))

    _bind_MatchStar = _bind_MatchAs

    def _bind_MatchMapping(self, node: ast.MatchMapping, scope: Scope, statement: ast.stmt) -> None:
        if node.rest is not None:
            scope.bindings.setdefault(node.rest, []).append(Binding(statement, node, None, (), "match"))

    def _bind_Global(self, node: ast.Global | ast.Nonlocal, scope: Scope, statement: ast.stmt) -> None:
        scope.outer_names.update(dict.fromkeys(node.names, "global" if isinstance(node, ast.Global) else "nonlocal"))

    _bind_Nonlocal = _bind_Global

    def _bind_Import(self, node: ast.Import, scope: Scope, statement: ast.stmt) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            self.bind_import(
                bound, alias.name if alias.asname else bound, scope, Binding(statement, alias, None, (), "import")
            )

    def _bind_ImportFrom(self, node: ast.ImportFrom, scope: Scope, statement: ast.stmt) -> None:
        base = "." * node.level + (node.module or "")
        if node.names[0].name == "*":
            self.stars.append(base)
        for alias in node.names:
            bound = alias.asname or alias.name
            joined = f"{base}{alias.name}" if base.endswith(".") else f"{base}.{alias.name}"
            self.bind_import(bound, joined, scope, Binding(statement, alias, None, (), "import"))

    def forget(self) -> None:
        """Answer anew what has been asked, since more names are bound now."""
        for known in ("_answers", "_calls_by_name", "method_calls"):
            self.__dict__.pop(known, None)
        self._qualified.clear()
        self._variables.clear()
        for scope in self.scopes.values():
            scope.variables.clear()

    def bind_import(self, name: str, dotted: str, scope: Scope, binding: Binding) -> None:
        """Let a name of a scope stand for an imported thing."""
        self.imports[name] = public(dotted)
        scope.bindings.setdefault(name, []).append(binding)
        self.imported_in.setdefault(name, set()).add(scope)


_BINDERS: dict[type, str] = {
    getattr(ast, name.removeprefix("_bind_")): name for name in vars(Module) if name.startswith("_bind_")
}
_SCOPED = frozenset((*_NEW_SCOPE, *_COMPREHENSION))


def _may_be_import(binding: Binding) -> bool:
    """Whether a name goes on being what was imported: `except ImportError: Visdom = None` leaves nothing to call."""
    return binding.kind == "import" or (isinstance(binding.value, ast.Constant) and binding.value.value is None)
