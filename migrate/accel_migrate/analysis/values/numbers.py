"""Numbers that the data was made by: one of them may be how many samples there are, of all processes together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.scopes import Module, Variable

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
    made: list[tuple[Module, ast.AST]] = []
    for loader in loaders:
        for module, call in constructions(roles, loader, Role.LOADER):
            made += data_of(roles, graph, module, call)
            sizes |= {module.variable(keyword.value) for keyword in call.keywords if keyword.arg == "batch_size"}
            sizes |= {module.variable(part) for part in call.args[1:2]}
    batches = {link for size in sizes if size is not None for link in chain(roles, graph, size)}
    for module, node in made:
        for part in _counts(module, node) if isinstance(node, ast.expr) else ():
            variable = module.variable(part)
            if variable is not None and variable not in batches:
                variables.add(variable)
            elif isinstance(part, ast.Constant) and type(part.value) is int and part.value >= _SMALLEST:
                values.add(part.value)
    return Numbers(frozenset(variables), frozenset(values))


def data_of(roles: Roles, graph: CallGraph, module: Module, loader: ast.Call) -> list[tuple[Module, ast.AST]]:
    """All that the data of a loader is made of: expressions, and the project's functions and classes that they name."""
    first = [*loader.args[:1], *[keyword.value for keyword in loader.keywords if keyword.arg == "dataset"]]
    pending: list[tuple[Module, ast.AST]] = [(module, part) for part in first]
    seen: set[ast.AST | Variable] = set()
    for owner, node in pending:
        parts = owner.walk(node, ast.Name, ast.Attribute, ast.Call)
        fields = [part for part in parts if isinstance(part, ast.Attribute)]
        held = {part.value: found for part in fields if (found := _field(roles, owner, part.value, part.attr))}
        pending += [each for found in held.values() for each in found if each not in pending]
        for part in parts:
            if len(pending) > _FARTHEST:
                break
            if part in held or (
                isinstance(above := owner.parents[part], ast.Call) and above in held and above.func is part
            ):
                continue  # `Views(size).plain`: of its object nothing else is used
            target = roles.target(owner, part) if isinstance(part, ast.Call) else roles.project.definition(owner, part)
            if target is not None and target.node not in seen and owner.scope(part).node is not target.node:
                seen.add(target.node)
                pending.append((target.module, target.node))
            dotted = owner.qualified(part)
            for variable in (owner.variable(part), roles.project.imported_variable(owner, dotted) if dotted else None):
                if variable is not None and variable not in seen:
                    seen.add(variable)
                    pending += graph.bound_to(variable)
    return pending


def _field(roles: Roles, module: Module, made: ast.AST, name: str) -> list[tuple[Module, ast.AST]]:
    """What the class of an object that is made on the spot sets one of its fields to."""
    target = roles.made(module, made)
    if target is None:
        return []
    bindings = target.module.bindings(Variable(target.module.classes[target.node], f"self.{name}"))
    return [(target.module, each.value) for each in bindings if each.value is not None]


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
