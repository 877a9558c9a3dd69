"""The calls that build what a variable holds, looked up inside the project's own functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.program.project import Definition
from accel_migrate.analysis.program.scopes import Module, Variable
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import unparse, walk

# Loaders of graphs cut their data by themselves. One is torch's own, that collates graphs.
_FOREIGN = ("dgl.", "torch_geometric.")
_GRAPHS = {"torch_geometric.loader.DataLoader", "torch_geometric.data.DataLoader"}


def constructions(roles: Roles, variable: Variable, role: Role) -> Iterator[tuple[Module, ast.Call]]:
    module = variable.scope.module
    for binding in module.bindings(variable):
        if isinstance(binding.value, ast.Call):
            target = roles.target(module, binding.value)
            if target is None or isinstance(target.node, ast.ClassDef):
                if not binding.path:
                    yield module, binding.value
                continue
            of_item = [*_calls(roles, target, role, _of_item(target, binding.path))]
            yield from of_item or _calls(roles, target, role, [target.node])


def _calls(roles: Roles, target: Definition, role: Role, nodes: Iterable[ast.AST]) -> Iterator[tuple[Module, ast.Call]]:
    """The calls in some parts of a function that make something of a role, and not by another function."""
    for node in dict.fromkeys(part for each in nodes for part in walk(each) if isinstance(part, ast.Call)):
        inner = roles.target(target.module, node) if roles.role(target.module, node) & role else target
        if inner is None or (inner is not target and isinstance(inner.node, ast.ClassDef)):
            yield target.module, node


def _of_item(target: Definition, path: tuple[int, ...]) -> list[ast.AST]:
    """What one item is made of where a function returns a tuple each time: `return train, test`. Empty if it does not."""
    module, returned = target.module, target.returned
    index = path[0] if path else -1
    tuples = [each for each in returned if isinstance(each, ast.Tuple) and 0 <= index < len(each.elts)]
    found: list[ast.AST] = [each.elts[index] for each in tuples] if len(tuples) == len(returned) else []
    for part in found:
        variables = [module.variable(node) for node in walk(part) if isinstance(node, ast.Name | ast.Attribute)]
        bindings = [binding for variable in variables if variable is not None for binding in module.bindings(variable)]
        found += [each.value for each in bindings if each.value is not None and each.value not in found]
    return found


def is_foreign_loader(roles: Roles, graph: CallGraph, loader: Variable) -> bool:
    """Whether a loader, under whatever name, comes from a library whose batches and sampling are its own."""
    names = list(chain(roles, graph, loader))  # the chain itself is kept and shared
    for name in names:
        for module, call in constructions(roles, name, Role.LOADER):
            made = module.qualified(call.func) or ""
            if made.startswith(_FOREIGN) and made not in _GRAPHS:
                return True
        module = name.scope.module
        for binding in module.bindings(name):  # `loader = dataset`
            other = module.variable(binding.value) if isinstance(binding.value, ast.Name) else None
            if other is not None and other not in names:
                names += [link for link in chain(roles, graph, other) if link not in names]
    return False


def collates_graphs(roles: Roles, graph: CallGraph, loader: Variable) -> bool:
    """Whether the batches of a loader are graphs, whose rows are not those of its samples."""
    built = [one for name in chain(roles, graph, loader) for one in constructions(roles, name, Role.LOADER)]
    return any((module.qualified(call.func) or "") in _GRAPHS for module, call in built)


def pads_batches(roles: Roles, graph: CallGraph, loader: Variable) -> bool:
    """Whether a loader collates by a function that pads, or is out of sight: batches may then differ in their length."""
    for name in chain(roles, graph, loader):
        for module, call in constructions(roles, name, Role.LOADER):
            collate = next((keyword.value for keyword in call.keywords if keyword.arg == "collate_fn"), None)
            if collate is None or (isinstance(collate, ast.Constant) and collate.value is None):
                continue
            target = roles.project.definition(module, collate)
            body: ast.AST | None = collate if isinstance(collate, ast.Lambda) else target.node if target else None
            if body is None or "pad" in unparse(body):
                return True
    return False


def drops_last(roles: Roles, graph: CallGraph, loader: Variable) -> bool:
    """Whether a loader may leave out its last batch: where batches are dealt out, a whole round of them may go."""
    return any(
        keyword.arg == "drop_last" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        for name in chain(roles, graph, loader)
        for _, call in constructions(roles, name, Role.LOADER)
        for keyword in call.keywords
    )


def is_torchs_sampler(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a sampler of torch that draws from all of the data."""
    owner, _, name = (module.qualified(call.func) or "").rpartition(".")
    return owner.startswith("torch.utils.data") and name.endswith("Sampler") and name != "DistributedSampler"
