"""An `if` that asks for a file, reads it and writes it, and functions that only write: one process does all of it."""

from __future__ import annotations

import ast

from accel_migrate.analysis.storage.files import makes_folder, writes
from accel_migrate.flow.file_calls import ASKING, READERS
from accel_migrate.flow.nodes import called_name, is_call_of, is_none
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function, Module

# Functions of libraries that change nothing of the script, by how their full names begin.
_PURE = (
    "os.path.", "pandas.", "json.load", "json.dump", "csv.", "yaml.", "pickle.load", "pickle.dump", "numpy.mean", "numpy.array",
    "numpy.concatenate", "numpy.vstack", "numpy.load", "numpy.arange", "numpy.linspace", "numpy.asarray", "numpy.transpose",
    "matplotlib.", "datetime.", "time.", "torch.argmax", "torch.cat", "torch.stack", "torchvision.utils.make_grid",
)  # fmt: skip
_BUILTINS = frozenset({
    "print", "len", "str", "int", "float", "bool", "list", "dict", "tuple", "set", "sorted", "min", "max", "sum", "round",
    "range", "enumerate", "zip", "isinstance", "open", "repr", "format", "abs", "any", "all",
})  # fmt: skip
_METHODS = frozenset({
    "join", "format", "item", "tolist", "copy", "items", "keys", "values", "strftime", "strip", "split", "mean", "replace",
    "detach", "cpu", "numpy", "squeeze", "unsqueeze", "permute", "transpose", "reshape", "repeat", "size", "clone", "clamp",
})  # fmt: skip


def asks_and_writes(module: Module, written: ast.stmt) -> list[ast.If]:
    """The `if`s around a statement that writes, inner ones first, which ask for files or read them and do nothing else."""
    found = []
    for parent in module.ancestors(written):
        if not isinstance(parent, ast.If) or not all(
            _is_harmless(module, parent, node) for node in module.walk(parent, ast.Call)
        ):
            break
        # `if exists(path): remove(path)` wants no more than a guard on what it does.
        parts = [parent] if parent.orelse else parent.body
        calls = [node for part in parts for node in module.walk(part, ast.Call)]
        if any(_reads(module, node) for node in calls) and not _is_elif(module, parent):
            found.append(parent)
    return found


def only_writes(module: Module, function: Function) -> bool:
    """Whether a function writes and shows, gives nothing back and changes nothing that its caller has."""
    kinds = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
    leaves = [node for node in module.walk(function) if isinstance(node, kinds)]
    changed = [node for node in module.walk(function) if isinstance(node, ast.Attribute | ast.Subscript)]
    added = [node.target for node in module.walk(function, ast.AugAssign)]
    return (
        all(isinstance(node, ast.Return) and (node.value is None or is_none(node.value)) for node in leaves)
        and all(isinstance(node.ctx, ast.Load) or _is_own(module, function, node) for node in changed)
        and all(_is_own(module, function, target) for target in added)
        and all(_is_harmless(module, function, call) for call in module.walk(function, ast.Call))
    )


def _is_own(module: Module, function: Function, target: ast.expr) -> bool:
    """Whether what is changed is of an object that the function has made."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    bindings = module.bindings_of(target) if isinstance(target, ast.Name) else []
    return bool(bindings) and all(b.kind != "parameter" and module.holds(function, b.statement) for b in bindings)


def _is_elif(module: Module, statement: ast.If) -> bool:
    above = module.parents[statement]
    return isinstance(above, ast.If) and above.orelse == [statement]


def _reads(module: Module, node: ast.Call) -> bool:
    opens = is_call_of(node, "open") and not writes(module, node)
    return opens or called_name(node) in ASKING or module.qualified(node.func) in READERS


def _is_harmless(module: Module, around: ast.stmt, node: ast.Call) -> bool:
    """Whether a call only deals with files, or with what is made inside of the statement."""
    if makes_folder(module, node):
        return False  # of which another rule speaks
    dotted = module.qualified(node.func)
    if dotted is not None:
        return dotted.startswith(_PURE) or dotted in READERS or (writes(module, node) and dotted != "torch.save")
    if isinstance(node.func, ast.Name):
        return node.func.id in _BUILTINS and module.resolve(node.func.id, module.scope(node)) is None
    name = called_name(node)
    return writes(module, node) or name in ASKING | _METHODS or _is_of_inside(module, around, node.func)


def _is_of_inside(module: Module, around: ast.stmt, function: ast.expr) -> bool:
    """Whether a method is one of an object that the statement makes: of `csv.writer(f)`, or of a name that it sets, `axes[0]`."""
    owner = function.value if isinstance(function, ast.Attribute) else function
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    if isinstance(owner, ast.Call):
        return True  # what a harmless call gave
    found = reaching(module, owner) if isinstance(owner, ast.Name) else []
    inside = [binding for binding in found if binding.kind != "parameter"]
    return bool(found) and len(inside) == len(found) and all(module.holds(around, each.statement) for each in inside)
