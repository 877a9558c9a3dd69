"""Where a new import goes in a file."""

from __future__ import annotations

import ast

from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first
from accel_migrate.plan import Insert


def import_line(module: Module, reader: ast.stmt, line: str) -> Insert:
    """Among the imports of torch and other packages: where the file's sorting puts it, else after the last of them."""
    body = module.tree.body
    limits = [s for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)]
    every = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]
    if module.scope(reader).function is None:
        limits.append(reader)  # type: ignore[arg-type]
        every = [s for s in every if comes_first(module, s, reader)]  # where it is made, the name must be bound
    imports = [s for s in every if all(module.is_written_before(s, limit) for limit in limits)] or every[:1]
    outside = [s for s in imports if not _is_future(s)]
    packages = [s for s in outside if _root(s) in ("torch", "torchvision", "transformers", "tqdm", "timm", "numpy")]
    if not imports:
        return Insert(_first_statement(module), (line,), "before", blank_after=True)
    anchor = (packages or outside or imports)[-1]
    if not packages:
        return Insert(anchor, (line,), "after", blank_before=_is_future(anchor))
    group = _group(outside, anchor)
    smaller = [s for s in group if _sorted_before(s) < (True, line.split()[1])]
    if not _is_sorted(group) or not smaller:
        return Insert(anchor, (line,), "after")
    return Insert(smaller[-1], (line,), "after")


def _group(imports: list[ast.Import | ast.ImportFrom], anchor: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
    """The imports around one that no blank line or comment parts from it."""
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in imports:
        apart = bool(found) and statement.lineno != (found[-1].end_lineno or 0) + 1
        if apart and anchor in found:
            break
        found = [statement] if apart else [*found, statement]
    return found


def _is_sorted(group: list[ast.Import | ast.ImportFrom]) -> bool:
    """As isort and ruff sort: plain imports, then `from` imports, each by name."""
    names = [_sorted_before(statement) for statement in group]
    return len(group) > 1 and names == sorted(names)


def _sorted_before(statement: ast.Import | ast.ImportFrom) -> tuple[bool, str]:
    if isinstance(statement, ast.ImportFrom):
        return True, (statement.module or "").lower()
    return False, statement.names[0].name.lower()


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _root(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").split(".")[0] if not statement.level else "."
    return statement.names[0].name.split(".")[0]


def _first_statement(module: Module) -> ast.stmt:
    body = module.tree.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    return body[1] if docstring else body[0]
