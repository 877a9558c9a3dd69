"""Numbers that the data was made by: one of them may be how many samples there are, of all processes together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.constructions import constructions
from accel_migrate.analysis.contents import handed_for
from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Module, Variable

_SAMPLES = {"n_samples", "num_samples", "size", "length", "n", "num_data", "train_size", "stop"}
_SMALLEST = 10  # a smaller number is hardly that of the samples
_FARTHEST = 400


@dataclass(frozen=True)
class Numbers:
    variables: frozenset[Variable]
    values: frozenset[object]


def numbers_of_data(roles: Roles, graph: CallGraph, loaders: Iterable[Variable]) -> Numbers:
    """What stands, in all that the data of some loaders is made of, where calls are given how many they are to make."""
    variables: set[Variable] = set()
    values: set[object] = set()
    sizes: set[Variable | None] = set()
    pending: list[tuple[Module, ast.expr]] = []
    for loader in loaders:
        for module, call in constructions(roles, loader, Role.LOADER):
            pending += [(module, part) for part in _data_of(call)]
            sizes |= {module.variable(keyword.value) for keyword in call.keywords if keyword.arg == "batch_size"}
            sizes |= {module.variable(part) for part in call.args[1:2]}
    seen: set[ast.AST | Variable] = set()
    for module, node in pending:
        _follow(graph, module, node, pending, seen)
    batches = {link for size in sizes if size is not None for link in chain(roles, graph, size)}
    for module, node in pending:
        for part in _counts(module, node):
            variable = module.variable(part)
            if variable is not None and variable not in batches:
                variables.add(variable)
            elif isinstance(part, ast.Constant) and type(part.value) is int and part.value >= _SMALLEST:
                values.add(part.value)
    return Numbers(frozenset(variables), frozenset(values))


def _data_of(call: ast.Call) -> list[ast.expr]:
    return [*call.args[:1], *[keyword.value for keyword in call.keywords if keyword.arg == "dataset"]]


def _follow(
    graph: CallGraph,
    module: Module,
    node: ast.expr,
    pending: list[tuple[Module, ast.expr]],
    seen: set[ast.AST | Variable],
) -> None:
    """Add what the variables in an expression are bound to, or get from their callers."""
    for part in module.walk(node, ast.Name, ast.Attribute):
        variable = module.variable(part)
        if variable is None or variable in seen or len(pending) > _FARTHEST:
            continue
        seen.add(variable)
        for binding in module.bindings(variable):
            if binding.kind == "parameter":
                pending += handed_for(graph, variable)
            elif binding.value is not None:
                pending.append((variable.scope.module, binding.value))


def _counts(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """`N` of `torch.randn(N, 3)`, `randint(0, 2, (N,))`, `make_blobs(n_samples=N)`, `rows[:N]`."""
    for part in module.walk(node, ast.Call, ast.Tuple, ast.Slice):
        if isinstance(part, ast.Call):
            yield from part.args[:1]
            yield from (keyword.value for keyword in part.keywords if keyword.arg in _SAMPLES)
        elif isinstance(part, ast.Tuple):
            yield from part.elts[:1]
        elif isinstance(part, ast.Slice) and part.upper is not None:
            yield part.upper
