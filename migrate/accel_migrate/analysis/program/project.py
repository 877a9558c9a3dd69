"""The files that are looked at together, and what a call in one of them calls in another."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from accel_migrate.analysis.program.scopes import Function, Module, Scope, Variable
from accel_migrate.analysis.program.star_imports import spell_out
from accel_migrate.flow.nodes import unparse


@dataclass(frozen=True, eq=False)
class Definition:
    """A function or class of the project."""

    module: Module
    node: Function | ast.ClassDef

    @property
    def scope(self) -> Scope:
        return self.module.functions[self.node]


def _is_of_class(node: Function | ast.ClassDef) -> bool:
    """Whether a method is called by its class, with no object."""
    return any(unparse(decorator) in ("staticmethod", "classmethod") for decorator in node.decorator_list)


class Project:
    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = list(modules)
        self._by_path = {Path(module.source.path): module for module in self.modules}
        self._names = {path.stem for path in self._by_path} | {path.parent.name for path in self._by_path}
        self._imported: dict[tuple[Path, str], Module | None] = {}
        self._definitions: dict[ast.AST, Definition | None] = {}
        spell_out(self)

    def imported_module(self, importer: Module, dotted: str) -> Module | None:
        """The project's file behind a module name, looked up beside the importer and then further out."""
        if dotted.rpartition(".")[2] not in self._names and dotted.strip("."):
            return None
        key = (Path(importer.source.path).parent, dotted)
        if key not in self._imported:
            self._imported[key] = self._find_module(importer, dotted)
        return self._imported[key]

    def _find_module(self, importer: Module, dotted: str) -> Module | None:
        level = len(dotted) - len(dotted.lstrip("."))
        parts = [part for part in dotted.lstrip(".").split(".") if part]
        folder = Path(importer.source.path).parent
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self._module_in(folder, parts)
        for candidate in (folder, *folder.parents):
            found = self._module_in(candidate, parts)
            if found is not None:
                return found
        return None

    def _module_in(self, folder: PurePath, parts: list[str]) -> Module | None:
        if not parts:
            return self._by_path.get(Path(folder, "__init__.py"))
        path = Path(folder, *parts)
        return self._by_path.get(path.with_name(path.name + ".py")) or self._by_path.get(path / "__init__.py")

    def definition(self, module: Module, node: ast.AST) -> Definition | None:
        """The function or class of the project that an expression names; None if it is not certain."""
        if node not in self._definitions:
            self._definitions[node] = self._find_definition(module, node)
        return self._definitions[node]

    def _find_definition(self, module: Module, node: ast.AST) -> Definition | None:
        if isinstance(node, ast.Name):
            variable = module.resolve(node.id, module.scope(node))
            return self._definition_of(module, variable) if variable else None
        if isinstance(node, ast.Attribute):
            scope = module.scope(node)
            owner = scope.owner_class
            if isinstance(node.value, ast.Name) and owner is not None and node.value.id == scope.self_name:
                return self.method(Definition(module, owner.node), node.attr)  # type: ignore[arg-type]
            dotted = module.qualified(node.value)
            if dotted is not None:
                imported = self.imported_module(module, dotted)
                if imported is not None:
                    return self._top_level(imported, node.attr)
            of = self.definition(module, node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
            if of is not None and isinstance(of.node, ast.ClassDef):
                found = self.method(of, node.attr)
                return found if found is not None and _is_of_class(found.node) else None
        return None

    def _definition_of(self, module: Module, variable: Variable, depth: int = 0) -> Definition | None:
        bindings = variable.scope.bindings[variable.name]
        if len(bindings) != 1:
            return None
        (binding,) = bindings
        if isinstance(binding.target, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return Definition(module, binding.target)
        if binding.kind == "import" and isinstance(binding.statement, ast.ImportFrom):
            dotted = module.imports[variable.name]
            owner, _, name = dotted.rpartition(".")
            imported = self.imported_module(module, owner or "." * binding.statement.level)
            return self._top_level(imported, name, depth + 1) if imported is not None else None
        return None

    def _top_level(self, module: Module, name: str, depth: int = 0) -> Definition | None:
        bindings = module.root.bindings.get(name, [])
        if len(bindings) != 1 or depth > 5:  # files may pass a name on to each other in a circle
            return None
        return self._definition_of(module, Variable(module.root, name), depth)

    def method(self, owner: Definition, name: str, depth: int = 0) -> Definition | None:
        """A method of a class, or of the base classes that are in the project."""
        for statement in owner.node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return Definition(owner.module, statement)
        if depth > 8 or not isinstance(owner.node, ast.ClassDef):
            return None
        for base in owner.node.bases:
            found = self.definition(owner.module, base)
            if found is not None and isinstance(found.node, ast.ClassDef):
                inherited = self.method(found, name, depth + 1)
                if inherited is not None:
                    return inherited
        return None

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
