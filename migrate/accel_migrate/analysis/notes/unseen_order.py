"""Sharded loaders of which nobody can read in which order they give their samples.

`prepare` shards what all processes draw alike. Silent where every loader is torch's DataLoader with `shuffle=True`, with a
sampler (AM807 speaks of the author's own), or over data that is indexed, or of a class of which is said that nobody has read it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import all_constructions, constructions, options_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import contents
from accel_migrate.analysis.values.unread import Unseen, is_unseen
from accel_migrate.flow.nodes import keyword_value, unparse
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Module

_LOADERS = ("torch.utils.data.DataLoader", "torch_geometric.", "dgl.")
_INDEXED = (
    "torchvision.", "torchaudio.datasets.", "torch.", "numpy.", "torch_geometric.", "dgl.", "sklearn.", "datasets.",
)  # fmt: skip
_CONTAINERS = (ast.List, ast.Tuple, ast.ListComp)


def unseen_order(script: Script, training: Training) -> Iterator[Unseen]:
    roles, graph = script.roles, script.graph
    for built in training.prepared:
        if built.role != Role.LOADER:
            continue
        links = list(chain(graph, built.variable))
        calls = [call for link in links for call in constructions(roles, link, Role.LOADER)]
        if not calls:  # `fit(DataLoader(data, shuffle=True))`
            handed = [all_constructions(roles, graph, *each) for link in links for each in graph.handed(link)]
            calls = [call for made in handed for call in made or ()] if all(handed) else []
        if not calls and built.key is None:
            module = built.variable.scope.module
            bindings = module.bindings(built.variable)
            yield Unseen(module, bindings[0].statement if bindings else training.place.after, built.variable.name)
        for module, call in calls:
            is_torchs = module.full_name(call.func).startswith(_LOADERS)
            if not is_torchs or not (_says_order(module, call) or _is_indexed(script, module, call)):
                yield Unseen(module, call, f"{unparse(call.func)}()")


def _says_order(module: Module, call: ast.Call) -> bool:
    """`shuffle=True` and samplers are for data with a length and an index alone."""
    if len(call.args) > 2:
        return True
    said = options_of(module, call)
    return any(isinstance(value, ast.Constant) and value.value is True for value in said.get("shuffle", ())) or bool(
        said.keys() & {"sampler", "batch_sampler"}
    )


def _is_indexed(script: Script, module: Module, call: ast.Call) -> bool:
    data = call.args[0] if call.args else keyword_value(call, "dataset")
    return data is not None and _all_indexed(script, module, data)


def _all_indexed(script: Script, module: Module, data: ast.expr, depth: int = 0) -> bool:
    """Whether all that an expression may be has a length and an index."""
    made = all_constructions(script.roles, script.graph, module, data)  # `train, valid = build()`
    if made:
        return all(_has_index(script, owner, call, depth) for owner, call in made)
    kept = list(contents(script.graph, module, data)) if depth < 4 else []
    lists = [(owner, part) for owner, part in kept if isinstance(part, _CONTAINERS)]
    inside = {each for owner, part in lists for each in owner.walk(part) if each is not part}  # they are samples
    parts = [(owner, part) for owner, part in kept if owner.variable(part) is None and part not in inside]
    parts += [split for owner, part in kept if (split := _split(script.roles, owner, part)) is not None]
    return bool(parts) and all(_has_index(script, owner, part, depth) for owner, part in parts)


def _split(roles: Roles, module: Module, node: ast.expr) -> tuple[Module, ast.expr] | None:
    """`random_split(whole, [40, 8])`, of which a name is a part: what is split has a length and an index."""
    for binding in module.bindings_of(node):
        made = binding.value.func if binding.path and isinstance(binding.value, ast.Call) else None
        if made is not None and (
            module.full_name(made).endswith("random_split") or is_unseen(roles.project, module, made)
        ):
            return module, binding.value  # type: ignore[return-value]
    return None


def _has_index(script: Script, module: Module, made: ast.expr, depth: int) -> bool:
    """Whether a data set is one of a library that is indexed, or of a class of the project that is, or says it is a stream."""
    roles = script.roles
    while isinstance(made, ast.Subscript | ast.BinOp):  # `rows[:8]`, `[row] * 8`
        if isinstance(made, ast.Subscript) and isinstance(made.slice, ast.Slice):
            return True  # no stream can be cut
        made = made.value if isinstance(made, ast.Subscript) else made.left
    if isinstance(made, _CONTAINERS):
        return True
    if not isinstance(made, ast.Call):
        return False
    target = roles.target(module, made)
    if target is not None and not isinstance(target.node, ast.ClassDef):
        given = target.returned
        return bool(given) and all(_all_indexed(script, target.module, value, depth + 1) for value in given)
    if target is not None:
        outside = roles.project.base_names(Definition(target.module, target.node))
        is_stream = any(base.endswith("IterableDataset") for base in outside)  # AM807 speaks of it
        return (
            is_stream
            or roles.project.method(target, "__getitem__") is not None
            or any(base.startswith(_INDEXED) and not base.endswith(".Dataset") for base in outside)
        )
    streams = any(keyword.arg == "streaming" for keyword in made.keywords)
    known = module.full_name(made.func).startswith(_INDEXED) or is_unseen(roles.project, module, made.func)
    return known and not streams
