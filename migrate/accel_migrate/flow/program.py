"""The files of a project as one program: what their names mean from file to file, and whom a class inherits from."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from accel_migrate.flow.lookup import Lookup, split
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Scope, Variable
from accel_migrate.flow.star_imports import spell_out

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*every, *[a for a in (arguments.vararg, arguments.kwarg) if a is not None]]


def _still_imported(module: Module, node: ast.expr) -> str | None:
    """`model` on the right of `model = model.Net()`: there it still is the file that was imported by that name."""
    variable = module.variable(node) if isinstance(node, ast.Name) and node.id in module.imports else None
    if variable is None or not module.is_import(variable):
        return None
    assert isinstance(node, ast.Name)
    bound = reaching(module, node)
    return module.imports[node.id] if bound and all(binding.kind == "import" for binding in bound) else None


def default_of(function: ast.AST, name: str) -> ast.expr | None:
    """The default of a parameter, where it has one."""
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in reversed(positional)], reversed(arguments.defaults)))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None}
    return defaults.get(name)


@dataclass(frozen=True, eq=False)
class Definition:
    """A function or class of the project."""

    module: Module
    node: Defined

    @property
    def scope(self) -> Scope:
        return self.module.functions[self.node]

    @property
    def returned(self) -> list[ast.expr]:
        """What a function gives back, by its own `return`s; a class gives nothing of the kind."""
        return self.module.returned(self.node) if not isinstance(self.node, ast.ClassDef) else []


@dataclass(frozen=True, eq=False)
class FunctionDefinition(Definition):
    """A function or a method of the project."""

    node: ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class ClassDefinition(Definition):
    """A class of the project."""

    node: ast.ClassDef


def _definition(module: Module, node: Defined) -> Definition:
    return (ClassDefinition if isinstance(node, ast.ClassDef) else FunctionDefinition)(module, node)  # type: ignore[arg-type]


def _is_of_class(node: Defined) -> bool:
    """Whether a method is called by its class, with no object."""
    return any(unparse(decorator) in ("staticmethod", "classmethod") for decorator in node.decorator_list)


class Program(Lookup):
    """All files together: what a name of one means in another, and the functions and classes that names stand for."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__(modules)
        self._imports: dict[Module, tuple[Module, ...]] = {}
        self._definitions: dict[ast.AST, Definition | None] = {}
        self.classes: dict[ast.AST, ClassDefinition] = {
            node: ClassDefinition(module, node)
            for module in self.modules
            for node in module.walk(module.tree, ast.ClassDef)
        }
        spell_out(self.modules, self.imported_module)

    @cached_property
    def calls(self) -> list[tuple[Module, ast.Call]]:
        """Every call of the project, with its file."""
        return [(module, call) for module in self.modules for call in module.calls]

    def imported(self, importer: Module, name: str) -> tuple[Module, str | None] | None:
        """The file, and the name in it, that an imported name of another file stands for."""
        dotted = importer.imports.get(name)
        return self.locate(importer, dotted) if dotted else None

    def imports(self, importer: Module) -> tuple[Module, ...]:
        """The files of the project that the imports of one name, in their order."""
        if importer not in self._imports:
            self._imports[importer] = self.imports_in(importer, [importer.tree])
        return self._imports[importer]

    def imports_in(self, importer: Module, parts: Iterable[ast.AST]) -> tuple[Module, ...]:
        """The files of the project that the imports in parts of one name."""
        dotted: list[str] = []
        for node in (node for part in parts for node in importer.walk(part, ast.Import, ast.ImportFrom)):
            if isinstance(node, ast.Import):
                for name in (alias.name for alias in node.names):
                    first = name.partition(".")[0]
                    dotted += [first, f"{first}.__init__", name]  # the package also where a file in it has its name
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                inner = base if base.endswith(".") else f"{base}."
                dotted += [base, *[f"{inner}{alias.name}" for alias in node.names]]
        found = [self.imported_module(importer, name) for name in dict.fromkeys(dotted)]
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def file_name(self, module: Module) -> str:
        """The name of a file, with that of its folder where others have the same."""
        several = sum(each.path.name == module.path.name for each in self.modules) > 1
        return "/".join(module.path.parts[-2:]) if several else module.path.name

    def module_of(self, function: ast.AST) -> Module:
        """The file of a function."""
        return next(module for module in self.modules if function in module.functions)

    def imported_variable(self, importer: Module, dotted: str) -> Variable | None:
        """The global of the project that a dotted name stands for, in the file that sets it: others may pass it on."""
        found: Variable | None = None
        for _ in range(5):  # files may pass a name on to each other in a circle
            owner, name = split(dotted)
            other = self.imported_module(importer, owner) if owner else None
            if other is None:
                break
            found = Variable(other.root, name)
            bindings = other.root.bindings.get(name, [])
            if {binding.kind for binding in bindings} != {"import"} or len({_origin(each) for each in bindings}) != 1:
                break
            importer, dotted = other, other.imports[name]
        return found

    def variable(self, module: Module, node: ast.expr) -> Variable | None:
        """The variable behind a name or a dotted attribute; of what is imported, the one in the file that sets it."""
        dotted = module.qualified(node)
        return module.variable(node) if dotted is None else self.imported_variable(module, dotted)

    def definition(self, module: Module, node: ast.AST) -> Definition | None:
        """The function or class of the project that an expression names; None if it is not certain."""
        if node not in self._definitions:
            self._definitions[node] = None  # names may be each other's
            self._definitions[node] = self._find_definition(module, node)
        return self._definitions[node]

    def _find_definition(self, module: Module, node: ast.AST) -> Definition | None:
        if isinstance(node, ast.Name):
            variable = module.resolve(node.id, module.scope(node))
            bound = reaching(module, node)
            if any(binding.kind == "import" for binding in bound):
                bound = module.bindings(variable)  # of several imports of one name `imports` keeps the last
            return self._definition_of(module, variable, bound) if variable else None
        if isinstance(node, ast.Attribute):
            scope = module.scope(node)
            owner = scope.owner_class
            if owner is not None and _is_super(node.value):
                return self._inherited_method(self.classes[owner.node], node.attr)
            if isinstance(node.value, ast.Name) and owner is not None and node.value.id == scope.self_name:
                return self._own_method(self.classes[owner.node], node.attr)
            dotted = module.qualified(node.value) or _still_imported(module, node.value)
            if dotted is not None:
                imported = self.imported_module(module, dotted)
                if imported is not None:
                    return self._top_level(imported, node.attr)
            of = self.definition(module, node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
            if of is not None and isinstance(of.node, ast.ClassDef):
                found = self.method(of, node.attr)
                return found if found is not None and _is_of_class(found.node) else None
        return None

    def _definition_of(
        self, module: Module, variable: Variable, bindings: list[Binding], depth: int = 0
    ) -> Definition | None:
        if len({_origin(binding) for binding in bindings}) != 1:
            return None
        binding = bindings[0]
        if isinstance(binding.target, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return _definition(module, binding.target)
        if binding.kind == "import" and isinstance(binding.statement, ast.ImportFrom):
            owner, name = split(module.imports[variable.name])
            imported = self.imported_module(module, owner)
            return self._top_level(imported, name, depth + 1) if imported is not None else None
        if binding.kind == "assign" and isinstance(binding.value, ast.Name) and not binding.path:
            return self.definition(module, binding.value)  # `judge = test`
        return None

    def _top_level(self, module: Module, name: str, depth: int = 0) -> Definition | None:
        if name not in module.root.bindings or depth > 5:  # files may pass a name on to each other in a circle
            return None
        return self._definition_of(module, Variable(module.root, name), module.root.bindings[name], depth)

    def method(self, owner: Definition, name: str, depth: int = 0) -> Definition | None:
        """A method of a class, or of the base classes that are in the project."""
        return _defined(owner, name) or self._inherited_method(owner, name, depth)

    def initializer(self, owner: Definition) -> Definition | None:
        """What runs when an object is made: of a dataclass, what it does once its fields are set."""
        return self.method(owner, "__init__") or self.method(owner, "__post_init__")

    def _inherited_method(self, owner: Definition, name: str, depth: int = 0) -> Definition | None:
        found = (self.method(base, name, depth + 1) for base in self.bases(owner) if depth <= 8)
        return next((method for method in found if method is not None), None)

    def _own_method(self, owner: Definition, name: str) -> Definition | None:
        """What `self.method()` runs: where a class leaves it to those that inherit, and one of them has it, that one."""
        found = self.method(owner, name)
        if found is not None and not _is_left_open(found.node):
            return found
        below = [method for heir in self.heirs(owner) if (method := _defined(heir, name)) is not None]
        return below[0] if len(below) == 1 else found

    def bases(self, owner: Definition) -> list[Definition]:
        """The classes of the project that a class is derived from directly."""
        named = owner.node.bases if isinstance(owner.node, ast.ClassDef) else []
        found = [self.definition(owner.module, base) for base in named]
        return [each for each in found if each is not None and isinstance(each.node, ast.ClassDef)]

    def all_bases(self, owner: Definition) -> list[Definition]:
        """The classes of the project that a class is derived from, directly or through others."""
        found = self.bases(owner)
        for base in found:
            found += [each for each in self.bases(base) if each.node not in {known.node for known in found}]
        return found

    def heirs(self, owner: Definition) -> list[Definition]:
        """The classes of the project that are derived from a class, directly or through others."""
        found: list[Definition] = []
        known = {owner.node}
        for _ in range(8):
            more = [
                each
                for each in self.classes.values()
                if each.node not in known and any(base.node in known for base in self.bases(each))
            ]
            if not more:
                break
            found += more
            known |= {each.node for each in more}
        return found

    def family(self, owner: Scope) -> frozenset[Scope]:
        """A class with its heirs, and with its base classes where all objects of these are its own too."""
        own = self.classes[owner.node]
        below = {own.node, *[heir.node for heir in self.heirs(own)]}
        found = {owner, *[heir.module.classes[heir.node] for heir in self.heirs(own)]}
        for base in self.all_bases(own):
            below.add(base.node)
            if base.node in self._made() or not {heir.node for heir in self.heirs(base)} <= below:
                break
            found.add(base.module.classes[base.node])
        return frozenset(found)

    def _made(self) -> set[ast.AST]:
        """The classes of the project that it makes objects of."""
        found = (self.definition(module, call.func) for module in self.modules for call in module.calls)
        return {each.node for each in found if each is not None}

    def attributes_inherited(self, module: Module) -> list[tuple[Variable, Variable]]:
        """The attributes that the classes of a file read and base classes set, with those."""
        derived = {each.node for each in self.classes.values() if each.module is module and self.bases(each)}
        read = [module.variable(node) for owner in derived for node in module.walk(owner, ast.Attribute)]
        own = dict.fromkeys(v for v in read if v is not None and v.scope.node in derived)
        return [(variable, above) for variable in own if (above := self.inherited(variable)) is not None]

    def inherited(self, variable: Variable) -> Variable | None:
        """The attribute of a base class that an attribute is, where its own class does not set it."""
        if not variable.scope.is_class or variable.scope.module.bindings(variable):
            return None
        for base in self.all_bases(self.classes[variable.scope.node]):
            above = Variable(base.module.classes[base.node], variable.name)
            if base.module.bindings(above):
                return above
        return None

    def is_torch_module(self, owner: Definition) -> bool:
        """Whether a class is derived from torch's modules, directly or through others, as far as its bases are named."""
        return any(
            base.startswith("torch.nn.") or base.endswith(("Module", "PreTrainedModel"))
            for base in self.base_names(owner)
        )

    def is_in_torch_module(self, module: Module, node: ast.AST) -> bool:
        """Whether a node is in a method of such a class."""
        owner = module.scope(node).owner_class
        return owner is not None and self.is_torch_module(self.classes[owner.node])

    def base_names(self, owner: Definition, depth: int = 0) -> set[str]:
        """Dotted names of every base class that lies outside of the project."""
        names: set[str] = set()
        if depth > 8 or not isinstance(owner.node, ast.ClassDef):
            return names
        for base in owner.node.bases:
            found = self.definition(owner.module, base)
            if found is not None and isinstance(found.node, ast.ClassDef) and found.node is not owner.node:
                names |= self.base_names(found, depth + 1)
            else:
                names.add(owner.module.qualified(base) or unparse(base))
        return names


def _origin(binding: Binding) -> object:
    """What a name is bound to, as far as it can be compared: a name that is imported twice from one place has one origin."""
    statement, alias = binding.statement, binding.target
    if isinstance(statement, ast.ImportFrom) and isinstance(alias, ast.alias):
        return statement.level, statement.module, alias.name
    return binding


def _is_super(node: ast.expr) -> bool:
    """`super()`, `super(Trainer, self)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _defined(owner: Definition, name: str) -> Definition | None:
    """The method that a class has in its own body."""
    for statement in owner.node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            return FunctionDefinition(owner.module, statement)
    return None


def _is_left_open(method: Defined) -> bool:
    """Whether a method only says that those who inherit must have it."""
    body = [s for s in method.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return all(isinstance(statement, ast.Raise | ast.Pass) for statement in body)
