"""Models that are found by their name, or built by code out of sight: what layers they have, nobody can tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.program.libraries import is_library
from accel_migrate.analysis.program.scopes import Module, Variable
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.made_of import built_by, made_of
from accel_migrate.analysis.values.roles import Roles

_MODEL_LIBRARIES = (
    "timm.", "monai.networks", "torch.hub.load", "torchvision.models.get_model", "torchvision.models.segmentation",
    "torchvision.models.detection", "torchvision.models.video", "segmentation_models_pytorch.", "kornia.",
)  # fmt: skip
_BY_NAME = ("globals", "locals", "eval", "getattr", "vars")


def looked_up(roles: Roles, graph: CallGraph, model: Variable) -> Iterator[Module]:
    """The files in one of which a model is found by its name: `archs.__dict__[args.arch]()`, `globals()[args.arch]()`."""
    project = roles.project
    for module, value in built_by(roles, graph, model):
        for node in module.walk(value):
            found: list[Module | None] = []
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in ("globals", "locals", "eval"):
                found = [module, *[project.imported_module(module, target) for target in module.imports.values()]]
                found += [project.imported_module(module, t.rpartition(".")[0] or t) for t in module.imports.values()]
            elif isinstance(node, ast.Attribute) and node.attr == "__dict__":
                found = [_imported(roles, module, node.value)]
            elif name in ("getattr", "vars") and isinstance(node, ast.Call) and node.args:
                found = [_imported(roles, module, node.args[0])]
            for each in dict.fromkeys(found):
                if each is not None:
                    path = each.source.path
                    package = path.parent if path.name == "__init__.py" else None
                    yield each
                    yield from (other for other in project.modules if package in other.source.path.parents)


def unseen_layers(roles: Roles, graph: CallGraph, model: Variable) -> tuple[Module, ast.Call] | None:
    """The first call by which a model is built, or a part of it, that does not lead to code of the project."""
    nodes: list[tuple[Module, ast.AST]] = [*built_by(roles, graph, model)]
    nodes += [(part.module, part.node) for part in made_of(roles, graph, model)]
    seen_by_name = next(looked_up(roles, graph, model), None) is not None
    for module, node in nodes:
        for call in module.walk(node, ast.Call):
            if isinstance(call, ast.Call) and _is_unseen(roles, module, call, seen_by_name):
                return module, call
    return None


def _is_unseen(roles: Roles, module: Module, call: ast.Call, seen_by_name: bool) -> bool:
    by_name = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    if isinstance(by_name, ast.Call):
        return getattr(by_name.func, "id", "") in _BY_NAME and not seen_by_name
    if isinstance(call.func, ast.Subscript):
        return isinstance(by_name, ast.Attribute) and by_name.attr == "__dict__" and not seen_by_name
    dotted = module.qualified(call.func)
    if dotted is None or roles.target(module, call) is not None:
        return False
    made = dotted.rpartition(".")[2][:1].isupper() and not is_library(dotted) and not _is_raised(module, call)
    return made or dotted.startswith(_MODEL_LIBRARIES)


def _is_raised(module: Module, call: ast.Call) -> bool:
    return isinstance(module.parents[call], ast.Raise)


def _imported(roles: Roles, module: Module, holder: ast.expr) -> Module | None:
    dotted = module.qualified(holder)
    return roles.project.imported_module(module, dotted) if dotted is not None else None
