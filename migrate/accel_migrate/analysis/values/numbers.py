"""Numbers that the data was made by: one of them may be how many samples there are, of all processes together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import Code, code_named
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import arguments_at
from accel_migrate.flow.scopes import Module, Variable

_SAMPLES = {"n_samples", "num_samples", "size", "length", "n", "num_data", "train_size", "stop"}
_SMALLEST = 10  # a smaller number is hardly that of the samples
_FARTHEST = 400


@dataclass(frozen=True)
class Numbers:
    variables: frozenset[Variable]
    values: frozenset[object]


def numbers_of_data(graph: CallGraph, loaders: Iterable[Variable]) -> Numbers:
    """What stands, in all that the data of some loaders is made of, where calls are given how many they are to make."""
    variables: set[Variable] = set()
    values: set[object] = set()
    sizes: set[Variable | None] = set()
    made: list[Code] = []
    for loader in loaders:
        for module, call in constructions(graph.roles, loader, Role.LOADER):
            made += data_of(graph, module, call)
            sizes |= {module.variable(part) for part in arguments_at(call, 1, "batch_size")}
    batches = {link for size in sizes for link in chain(graph, size)}
    for module, node in made:
        for part in _counts(module, node) if isinstance(node, ast.expr) else ():
            variable = module.variable(part)
            if variable is not None and variable not in batches:
                variables.add(variable)
            elif isinstance(part, ast.Constant) and type(part.value) is int and part.value >= _SMALLEST:
                values.add(part.value)
    return Numbers(frozenset(variables), frozenset(values))


def data_of(graph: CallGraph, module: Module, loader: ast.Call) -> list[Code]:
    """All that the data of a loader is made of: expressions, and the project's functions and classes that they name."""

    def steps(code: Code) -> Iterator[Code]:
        owner, node = code
        fields = owner.walk(node, ast.Attribute)
        held = {part.value: found for part in fields if (found := _field(graph.roles, owner, part.value, part.attr))}
        yield from (each for found in held.values() for each in found)
        called = {part.func for part in held if isinstance(part, ast.Call)}
        for part in owner.walk(node, ast.Name, ast.Attribute, ast.Call):
            if part not in held and part not in called:  # `Views(size).plain`: of its object nothing else is used
                yield from code_named(graph, owner, part)
                variable = graph.roles.project.variable(owner, part)
                yield from graph.bound_to(variable) if variable is not None else ()

    data: list[Code] = [(module, part) for part in arguments_at(loader, 0, "dataset")]
    return list(closure(data, steps, _FARTHEST))


def _field(roles: Roles, module: Module, made: ast.AST, name: str) -> list[Code]:
    """What the class of an object that is made on the spot sets one of its fields to."""
    target = roles.made(module, made)
    if target is None:
        return []
    bindings = target.module.bindings(Variable(target.module.classes[target.node], f"self.{name}"))
    return [(target.module, each.value) for each in bindings if each.value is not None]


def _counts(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """`N` of `torch.randn(N, 3)`, `randint(0, 2, (N,))`, `make_blobs(n_samples=N)`, `rows[:N]`, `random_split(rows, [N, M])`."""
    for part in module.walk(node, ast.Call, ast.Tuple, ast.Slice):
        if isinstance(part, ast.Call):
            yield from part.args[:1]
            yield from (keyword.value for keyword in part.keywords if keyword.arg in _SAMPLES)
            if module.qualified(part.func) == "torch.utils.data.random_split":
                yield from (n for each in arguments_at(part, 1, "lengths") for n in getattr(each, "elts", ()))
        elif isinstance(part, ast.Tuple):
            yield from part.elts[:1]
        elif isinstance(part, ast.Slice) and part.upper is not None:
            yield part.upper
