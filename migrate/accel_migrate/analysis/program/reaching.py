"""Which bindings a name may hold where it is read, by the order of statements and the blocks around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Binding, Module, Variable

# What goes through a generator before it returns; others, such as `map`, may keep it for later.
_CONSUMERS = {
    "all",
    "any",
    "dict",
    "extend",
    "frozenset",
    "join",
    "list",
    "max",
    "min",
    "set",
    "sorted",
    "sum",
    "tuple",
}


@once
def reaching(module: Module, node: ast.Name, variable: Variable) -> list[Binding]:
    """The bindings whose value the name may hold here: the nearest one above in the text, or those of the branches."""
    bindings = [b for b in variable.scope.bindings.get(variable.name, []) if b.kind != "delete"]
    if not _is_read_in_place(module, node, variable):
        return bindings
    here = module.statement(node)
    found: list[Binding] = []
    position: ast.AST = here
    inclusive_for = isinstance(here, ast.For) and not module.holds(here.iter, node)
    for parent in (here, *module.ancestors(here)):
        if (
            isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.ClassDef)
            and parent is not here
        ):
            block: list[ast.stmt] = parent.body
            done = _scan(module, block, position, bindings, found)
            if not done:
                found += [b for b in bindings if b.kind in ("parameter", "comprehension")]
            return found
        if parent is here:
            if inclusive_for:
                own = [b for b in bindings if b.statement is here and b.kind == "for"]
                if own:
                    return own
            if isinstance(here, ast.While):  # asked again after each round
                found += [b for b in bindings if b.statement is not here and module.holds(here, b.statement)]
            continue
        for block in _blocks(parent):
            if any(item is position for item in block):
                if _scan(module, block, position, bindings, found):
                    return found
                break
        if isinstance(parent, ast.For | ast.AsyncFor):
            own = [b for b in bindings if b.statement is parent and b.kind == "for"]
            if own:
                return found + own
        if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
            # set further down, read in the next round
            found += [
                b for b in bindings if b not in found and module.holds(parent, b.statement) and b.statement is not here
            ]
        if isinstance(parent, ast.With | ast.AsyncWith):
            own = [b for b in bindings if b.statement is parent]
            if own:
                return found + own
        position = parent
    return found or bindings


def _is_read_in_place(module: Module, node: ast.Name, variable: Variable) -> bool:
    """Whether a name is read where it stands in its own scope: a comprehension runs there, a function when it is called."""
    scope = module.scope(node)
    while scope is not variable.scope and scope.parent is not None and _runs_at_once(module, scope.node):
        scope = scope.parent
    return scope is variable.scope


def _runs_at_once(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.GeneratorExp):
        around = module.parents[node]
        function = around.func if isinstance(around, ast.Call) else None
        return getattr(function, "id", getattr(function, "attr", "")) in _CONSUMERS
    return isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)


def _scan(
    module: Module, block: list[ast.stmt], position: ast.AST, bindings: list[Binding], found: list[Binding]
) -> bool:
    """Collect bindings above `position` in a block; True once one of them always holds."""
    index = next((i for i, item in enumerate(block) if item is position), len(block))
    for statement in reversed(block[:index]):
        inside = [b for b in bindings if module.holds(statement, b.statement)]
        if not inside:
            continue
        own = [b for b in inside if b.statement is statement]
        direct = [b for b in own if b.kind in ("assign", "import", "definition")]
        if direct:
            found += direct
            return True
        inner = _always_one(statement)
        if inner and not own:
            ended = [_scan(module, branch, statement, inside, found) for branch in inner]
            if all(ended):
                return True
            continue
        nested = [*[b for b in inside if b.statement is not statement], *own]
        found += [b for b in nested if b not in found and b.kind != "parameter"]
    return False


def _always_one(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement of which one always runs: that of a `with`, both sides of a question."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [statement.body]
    return [statement.body, statement.orelse] if isinstance(statement, ast.If) and statement.orelse else []


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for name in ("handlers", "cases"):
        for part in getattr(node, name, ()):
            yield part.body
