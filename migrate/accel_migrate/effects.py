"""Whether an expression or an import does nothing but look at things, so that it can go when nothing depends on it any more."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence

from accel_migrate.flow.imports import module_name
from accel_migrate.flow.nodes import children, walk
from accel_migrate.source import Source

_ASKING = {
    "all", "any", "autocast", "device", "device_count", "endswith", "enumerate", "get_rank", "get_world_size", "getattr",
    "hasattr", "is_available", "is_bf16_supported", "is_initialized", "is_main_process", "is_tensor", "isfile", "isinstance",
    "items", "keys", "len", "no_grad", "range", "startswith", "values", "zip",
}  # fmt: skip


_LIBRARIES = sys.stdlib_module_names | {
    "accelerate", "apex", "deepspeed", "fairscale", "horovod", "numpy", "torch", "torchaudio", "torchtext", "torchvision",
    "tqdm", "transformers",
}  # fmt: skip
_DECORATORS = {
    "abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass", "inference_mode", "lru_cache",
    "no_grad", "property", "setter", "staticmethod", "total_ordering", "wraps",
}  # fmt: skip
_CONVERTING = {
    "bool",
    "float",
    "format",
    "get",
    "getenv",
    "int",
    "join",
    "lower",
    "max",
    "min",
    "split",
    "str",
    "strip",
}
Import = ast.Import | ast.ImportFrom
_QUIET = (ast.Return, ast.If, ast.Pass, ast.Expr, ast.Import, ast.ImportFrom)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def only_loads(statement: Import, files: Sequence[Source]) -> bool:
    """Whether an import runs nothing that matters: a library, or files that only define things and import such files."""
    waiting = [statement]
    seen: set[str] = set()
    for each in waiting:
        for names in _imported(each):
            of_library = names[0] in _LIBRARIES
            if of_library and not any(names[0] in (module_name(file), *file.path.parts) for file in files):
                continue  # `torch.utils.data` is no file data.py of the project
            found = [file for file in files if module_name(file) in names]
            if not found and not of_library:
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
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return _binds_names(targets) and (statement.value is None or only_reads(statement.value))
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test).startswith("__name__ ==")
    if isinstance(statement, ast.ClassDef):
        return _is_plainly_decorated(statement) and all(map(_only_defines, statement.body))
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return _is_plainly_decorated(statement)
    return isinstance(statement, Import | ast.Pass)


def _is_plainly_decorated(definition: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether no decorator may tell others of what it decorates: `@register("resnet")`."""
    return all(
        _last_name(each.func if isinstance(each, ast.Call) else each) in _DECORATORS
        for each in definition.decorator_list
    )


def _binds_names(targets: Sequence[ast.expr]) -> bool:
    """Whether names are all that is bound: `cudnn.benchmark` and `os.environ["X"]` are read elsewhere."""
    return all(
        isinstance(target, ast.Name) or (isinstance(target, ast.Tuple | ast.List) and _binds_names(target.elts))
        for target in targets
    )


def more_than_an_answer(function: Function, called: Callable[[ast.Call], Sequence[Function]]) -> ast.AST | None:
    """What a function does beside finding out what it returns; None where it does nothing else.

    `called` gives the functions of the project that a call may run; what others do must be known by their names.
    """
    functions = [function]
    for each in functions:
        waiting: list[ast.AST] = [*each.body] if isinstance(each.body, list) else [each.body]
        for node in waiting:
            if isinstance(node, ast.Call):
                inner = called(node)
                functions += [one for one in inner if one not in functions]
                if not inner and _last_name(node.func) not in _ASKING | _CONVERTING:
                    return node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                if not _binds_names(node.targets if isinstance(node, ast.Assign) else [node.target]):
                    return node
            elif isinstance(node, ast.stmt | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
                if not isinstance(node, _QUIET):
                    return node
            waiting += children(node)
    return None


def only_reads(node: ast.expr, *asking: str) -> bool:
    """Names, attributes, comparisons, and calls of functions that are known to ask and not to act."""
    for part in walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call):
            of_text = isinstance(part.func, ast.Attribute) and isinstance(part.func.value, ast.Constant)
            name = _last_name(part.func)
            if name not in _ASKING and name not in asking and not of_text:  # `"cuda:{}".format(gpu)`
                return False
    return True


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
