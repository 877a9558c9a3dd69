"""What `from module import *` brings: the names of a file of the project, or names that nobody can tell."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator

from accel_migrate.flow.scopes import Binding, Module

Find = Callable[[Module, str], Module | None]  # the file of the project that a module's name means for an importer
# `__accel_magic__` stands for what only a notebook understands.
_KNOWN = frozenset(dir(builtins)) | {"__file__", "__class__", "__accel_magic__"}
_INNOCENT = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "matplotlib", "pylab"}


def spell_out(modules: Iterable[Module], find: Find) -> None:
    """Bind in every file what star imports of other files bring, as if each name had been imported by itself."""
    for module in modules:
        _spell_out(module, find, set())


def _spell_out(module: Module, find: Find, seen: set[Module]) -> None:
    if module in seen:
        return
    seen.add(module)
    for statement in _star_imports(module):
        base = "." * statement.level + (statement.module or "")
        source = find(module, base)
        if source is None:
            continue
        _spell_out(source, find, seen)
        for name in _public(source):
            if name not in module.root.bindings:
                joined = f"{base}{name}" if base.endswith(".") else f"{base}.{name}"
                passed_on = source.imports.get(name, ".")
                dotted = joined if passed_on.startswith(".") else passed_on
                module.bind_import(
                    name, dotted, module.root, Binding(statement, statement.names[0], None, (), "import")
                )
                module.forget()


def unknown_names(module: Module, find: Find) -> Iterator[tuple[str, str, int]]:
    """Names that only a star import of a file out of sight can bring: the name, its module, the line that reads it."""
    hidden = [s for s in _star_imports(module) if _is_hidden(module, find, s)]
    if not hidden:
        return
    for node in module.walk(module.tree, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in _KNOWN:
            if module.resolve(node.id, module.scope(node)) is None:
                yield node.id, hidden[-1].module or ".", node.lineno


def _is_hidden(module: Module, find: Find, statement: ast.ImportFrom) -> bool:
    base = "." * statement.level + (statement.module or "")
    return base.split(".")[0] not in _INNOCENT and find(module, base) is None


def _star_imports(module: Module) -> list[ast.ImportFrom]:
    if "*" not in module.root.bindings:
        return []
    found = [binding.statement for binding in module.root.bindings["*"]]
    return [statement for statement in found if isinstance(statement, ast.ImportFrom)]


def _public(module: Module) -> list[str]:
    """The names that a star import takes: those of `__all__`, or all that do not begin with an underscore."""
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List | ast.Tuple):
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets):
                return [
                    e.value for e in statement.value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)
                ]
    return [name for name in module.root.bindings if not name.startswith("_") and name != "*"]
