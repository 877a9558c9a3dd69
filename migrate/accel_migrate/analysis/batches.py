"""Which values come out of which loader: a move of such a value is the prepared loader's business."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.loops import CallGraph, iterated_loader
from accel_migrate.analysis.project import Definition
from accel_migrate.analysis.roles import Role, Roles, arguments_of
from accel_migrate.analysis.scopes import Binding, Module, Variable

_LEAVES_DEVICE = {"cpu", "numpy", "tolist", "item"}


class Batches:
    """Follows a value back to the loaders it was read from, through names, parts, methods and calls."""

    def __init__(self, roles: Roles, graph: CallGraph) -> None:
        self.roles = roles
        self.graph = graph

    def loaders(self, module: Module, node: ast.expr, depth: int = 0) -> set[Variable] | None:
        """The loaders a value may come from; None if it may come from anything else as well."""
        if depth > 12:
            return None
        if isinstance(node, ast.Name):
            return self._name(module, node, depth)
        if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
            if isinstance(node, ast.Attribute) and module.variable(node) in module.attribute_bindings:
                return None
            return self.loaders(module, node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._call(module, node, depth)
        if isinstance(node, ast.Tuple | ast.List):
            return _all(self.loaders(module, item, depth + 1) for item in node.elts)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and len(node.generators) == 1:
            part = node.value if isinstance(node, ast.DictComp) else node.elt
            return self.loaders(module, part, depth + 1)
        if isinstance(node, ast.IfExp):
            return _all((self.loaders(module, node.body, depth + 1), self.loaders(module, node.orelse, depth + 1)))
        return None

    def _call(self, module: Module, node: ast.Call, depth: int) -> set[Variable] | None:
        function = node.func
        if module.qualified(function) == "torch.autograd.Variable" and node.args:
            return self.loaders(module, node.args[0], depth + 1)
        if isinstance(function, ast.Name) and function.id in ("next", "iter") and node.args:
            loader = iterated_loader(self.roles, module, node.args[0])
            if loader is not None:
                variable = module.variable(loader)
                return {variable} if variable is not None else None
            return self._iterator(module, node.args[0]) if function.id == "next" else None
        if isinstance(function, ast.Name) and function.id in ("list", "tuple", "dict", "map") and node.args:
            return self.loaders(module, node.args[-1], depth + 1)
        if isinstance(function, ast.Attribute) and module.qualified(function) is None:
            if function.attr in _LEAVES_DEVICE:
                return None
            return self.loaders(module, function.value, depth + 1)
        return None

    def _iterator(self, module: Module, node: ast.expr) -> set[Variable] | None:
        variable = module.variable(node)
        if variable is None or not self.roles.of(variable) & Role.ITERATOR:
            return None
        found: set[Variable] = set()
        for binding in module.bindings(variable):
            if not isinstance(binding.value, ast.Call) or not binding.value.args:
                return None
            loader = module.variable(binding.value.args[0])
            if loader is None:
                return None
            found.add(loader)
        return found or None

    def _name(self, module: Module, node: ast.Name, depth: int) -> set[Variable] | None:
        variable = module.variable(node)
        if variable is None:
            return None
        sources: list[set[Variable] | None] = []
        for binding in reaching(module, node, variable):
            if binding.kind == "parameter":
                sources.append(self._parameter(variable, depth))
            elif binding.kind in ("for", "comprehension"):
                assert binding.value is not None
                sources.append(self._looped(module, binding.value, binding.path, depth))
            elif binding.kind == "assign" and binding.value is not None:
                sources.append(self.loaders(module, binding.value, depth + 1))
            else:
                return None
        return _all(sources)

    def _looped(self, module: Module, iterated: ast.expr, path: tuple[int, ...], depth: int) -> set[Variable] | None:
        loader = iterated_loader(self.roles, module, iterated)
        if loader is not None:
            counted = any(isinstance(n, ast.Name) and n.id == "enumerate" for n in module.walk(iterated, ast.Name))
            if counted and path[:1] == (0,):
                return None  # the counter
            variable = module.variable(loader)
            return {variable} if variable is not None else None
        if (
            isinstance(iterated, ast.Call)
            and isinstance(iterated.func, ast.Name)
            and iterated.func.id in ("zip", "enumerate")
        ):
            if iterated.func.id == "zip" and path and path[0] < len(iterated.args):
                return self._looped(module, iterated.args[path[0]], path[1:], depth)
            if iterated.func.id == "enumerate" and path[:1] == (1,) and iterated.args:
                return self._looped(module, iterated.args[0], path[1:], depth)
            return None
        if (
            isinstance(iterated, ast.Call)
            and isinstance(iterated.func, ast.Attribute)
            and iterated.func.attr in ("items", "values")
        ):
            if iterated.func.attr == "items" and path[:1] == (0,):
                return None
            return self.loaders(module, iterated.func.value, depth + 1)
        return self.loaders(module, iterated, depth + 1)

    def _parameter(self, variable: Variable, depth: int) -> set[Variable] | None:
        function = variable.scope.node
        found: list[set[Variable] | None] = []
        for caller, call in self.graph.sites.get(function, ()):  # type: ignore[call-overload]
            passed = dict(arguments_of(call, Definition(variable.scope.module, function)))  # type: ignore[arg-type]
            if variable.name not in passed:
                return None
            found.append(self.loaders(caller, passed[variable.name], depth + 1))
        return _all(found) if found else None


def _all(sources: Iterable[set[Variable] | None]) -> set[Variable] | None:
    joined: set[Variable] = set()
    for source in sources:
        if source is None:
            return None
        joined |= source
    return joined or None


def reaching(module: Module, node: ast.Name, variable: Variable) -> list[Binding]:
    """The bindings whose value the name may hold here: the nearest one above in the text, or those of the branches."""
    bindings = [b for b in variable.scope.bindings.get(variable.name, []) if b.kind != "delete"]
    if variable.scope is not module.scope(node):
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
            found += [b for b in bindings if b not in found and module.holds(parent, b.statement)]
        if isinstance(parent, ast.With | ast.AsyncWith):
            own = [b for b in bindings if b.statement is parent]
            if own:
                return found + own
        position = parent
    return found or bindings


def _scan(
    module: Module, block: list[ast.stmt], position: ast.AST, bindings: list[Binding], found: list[Binding]
) -> bool:
    """Collect bindings above `position` in a block; True once one of them always holds."""
    index = next((i for i, item in enumerate(block) if item is position), len(block))
    for statement in reversed(block[:index]):
        direct = [b for b in bindings if b.statement is statement and b.kind in ("assign", "import", "definition")]
        if direct:
            found += direct
            return True
        inner = _always_one(statement)
        own = any(b.statement is statement for b in bindings)
        if inner and not own:
            ended = [_scan(module, branch, statement, bindings, found) for branch in inner]
            if all(ended):
                return True
            continue
        nested = [b for b in bindings if b.statement is not statement and module.holds(statement, b.statement)]
        nested += [b for b in bindings if b.statement is statement and b.kind not in ("assign", "import", "definition")]
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
