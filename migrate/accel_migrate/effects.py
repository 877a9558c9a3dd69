"""Whether an expression or an import does nothing but look at things, so that it can go when nothing depends on it any more."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from accel_migrate.flow.imports import module_name
from accel_migrate.flow.nodes import walk
from accel_migrate.source import Source

_ASKING = {
    "all", "any", "autocast", "device_count", "endswith", "enumerate", "get_rank", "get_world_size", "getattr", "hasattr",
    "is_available", "is_bf16_supported", "is_initialized", "is_main_process", "is_tensor", "isfile", "isinstance",
    "items", "keys", "len", "no_grad", "range", "startswith", "values", "zip",
}  # fmt: skip


_LIBRARIES = sys.stdlib_module_names | {
    "accelerate", "apex", "deepspeed", "fairscale", "horovod", "numpy", "torch", "torchaudio", "torchtext", "torchvision",
    "tqdm", "transformers",
}  # fmt: skip
Import = ast.Import | ast.ImportFrom


def only_loads(statement: Import, files: Sequence[Source]) -> bool:
    """Whether an import runs nothing that matters: a library, or files that only define things and import such files."""
    waiting = [statement]
    seen: set[str] = set()
    for each in waiting:
        for names in _imported(each):
            found = [file for file in files if module_name(file) in names]
            if not found and names[0] not in _LIBRARIES:
                return False
            for file in found:
                if str(file.path) not in seen:
                    seen.add(str(file.path))
                    if not all(_only_defines(line) for line in file.tree.body):
                        return False
                    waiting += [line for line in file.tree.body if isinstance(line, Import)]
    return True


def _imported(statement: Import) -> Iterator[list[str]]:
    """The parts of each name that a statement may load a file by."""
    if isinstance(statement, ast.Import):
        yield from (alias.name.split(".") for alias in statement.names)
    else:
        yield [*(statement.module or "").split("."), *[alias.name for alias in statement.names]]


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return statement.value is None or only_reads(statement.value, "device")
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test).startswith("__name__ ==")
    return isinstance(statement, Import | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def only_reads(node: ast.expr, *asking: str) -> bool:
    """Names, attributes, comparisons, and calls of functions that are known to ask and not to act."""
    for part in walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name not in _ASKING and name not in asking:
                return False
    return True
