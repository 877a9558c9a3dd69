"""What each loss is computed through: calls and variables, back over names, arguments and what functions return."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import children, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_SETTING = frozenset((ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.Call))

# Methods of models, optimizers and schedulers that no loss comes through.
RUNS_NOTHING = frozenset(
    [
        *("parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children"),
        *("named_children", "state_dict", "load_state_dict", "train", "eval", "zero_grad", "step", "get_last_lr"),
        *("prepare", "to", "cuda", "cpu", "half", "float", "double", "requires_grad_"),
    ]
)


class Losses:
    """The calls and the variables that each loss is computed through."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._paths: dict[ast.Call, _Path] = {}
        self._values: dict[ast.AST, dict[str, list[ast.AST]]] = {}  # of each name, by scope

    def calls(self, file: Module, backward: ast.Call) -> dict[ast.Call, Module]:
        return self._path(file, backward).calls

    def reads(self, file: Module, backward: ast.Call) -> set[Place]:
        return {self._side.flows.place(at, node) for node, at in self._path(file, backward).reads.items()}

    def _path(self, file: Module, backward: ast.Call) -> _Path:
        if backward not in self._paths:
            assert isinstance(backward.func, ast.Attribute)
            owner = backward.func.value
            path = self._paths[backward] = _Path(self._side, self._values)
            losses = backward.args if is_accelerator(owner) else [owner]
            for loss in losses:
                path.visit(file, loss)
        return self._paths[backward]


class _Path:
    """All calls that a value may come from, with their files: back over names, arguments and what functions return."""

    def __init__(self, side: Side, values: dict[ast.AST, dict[str, list[ast.AST]]]) -> None:
        self.side = side
        self.calls: dict[ast.Call, Module] = {}
        self.reads: dict[ast.Name | ast.Attribute, Module] = {}
        self.seen: set[ast.AST] = set()
        self._entered: set[ast.AST] = set()  # functions whose call is on the path, with what it hands over
        self._values = values

    def visit(self, file: Module, value: ast.AST) -> None:
        pending: list[tuple[Module, ast.AST]] = [(file, value)]
        while pending:
            at, node = pending.pop()
            if node in self.seen or _is_detached(node) or is_accelerator(node):
                continue
            self.seen.add(node)
            if isinstance(node, ast.Name):
                self.reads[node] = at
                pending += self._bound(at, node) if isinstance(node.ctx, ast.Load) else ()
                continue
            pending += [(at, part) for part in children(node)]
            if isinstance(node, ast.Attribute):
                self.reads[node] = at
            elif isinstance(node, ast.Call):
                self.calls[node] = at
                pending += self._returned(node)

    def _returned(self, call: ast.Call) -> Iterator[tuple[Module, ast.AST]]:
        for function in self.side.flows.callees.get(call, ()):
            if getattr(function, "name", "") != "__init__":
                self._entered.add(function)
                for node in walk(function):
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield self.side.flows.function_file[function], node.value

    def _bound(self, file: Module, name: ast.Name) -> Iterator[tuple[Module, ast.AST]]:
        scope = file.scope(name).frame
        if file.qualified(name) is not None:
            return  # `torch.ones_like(output)` tells torch nothing
        if scope.node not in self._values:
            self._values[scope.node] = _values_in(scope.node)
        yield from ((file, value) for value in self._values[scope.node].get(name.id, ()))
        if scope.node in self._entered or not isinstance(scope.node, Function):
            return
        if name.id in parameter_names(scope.node):
            for site in self.side.above(scope.node):
                argument = argument_of(scope.node, site.call, name.id)
                if argument is not None:
                    yield site.file, argument


def _is_detached(node: ast.AST) -> bool:
    """`fake.detach()`, `fake.data`, `loss.item()`: no gradient goes on from here."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("detach", "item", "numpy")
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _values_in(scope: ast.AST) -> dict[str, list[ast.AST]]:
    """What each name of a scope is set to, or handed by its methods: `losses.append(loss)`."""
    found: dict[str, list[ast.AST]] = {}
    for node in walk(scope):
        if type(node) not in _SETTING:
            continue
        value = node.iter if isinstance(node, ast.For) else getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For) and value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in {part.id for target in targets for part in walk(target) if isinstance(part, ast.Name)}:
                found.setdefault(name, []).append(value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name):
                found.setdefault(node.func.value.id, []).extend(node.args)
    return found
