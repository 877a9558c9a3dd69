"""What a model is made of: the classes and functions of the project that its construction runs through."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import Place, code_behind, contents
from accel_migrate.flow.nodes import arguments_at, is_call_of, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Function, Module, Variable

_WITH_WEIGHTS = {
    "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding",
    "EmbeddingBag", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
    "LayerNorm", "GroupNorm", "MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerDecoder",
    "TransformerEncoderLayer", "TransformerDecoderLayer", "PReLU", "Parameter",
}  # fmt: skip
_LIBRARY_MODELS = ("torchvision.models.", "timm.")
_COPIES = {"torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder", "copy.deepcopy"}
_COMPUTES_NOTHING = {"device", "dtype", "shape", "ndim", "is_cuda", "requires_grad"}  # `self.marker.device`
_ANY_PART = {"children", "modules", "named_children", "named_modules", "_modules", "__dict__", "parameters"}


@dataclass(frozen=True, eq=False)
class Part:
    """A layer with weights that nothing reads, as an attribute of its class."""

    module: Module
    owner: ast.ClassDef
    name: str
    line: int


@once
def made_of(graph: CallGraph, model: Variable) -> list[Definition]:
    """Every class and function that building the model calls, in the project."""

    def values(graph: CallGraph, module: Module, part: ast.AST) -> Iterator[Place]:
        variable = module.variable(part) if isinstance(part, ast.Name) else None
        if (
            variable is not None
            and graph.roles.of(variable) & Role.MODEL
            and not variable.scope.module.is_parameter(variable)
        ):
            yield from built_by(graph, variable)  # `Attacked(model)`

    found = code_behind(graph, built_by(graph, model), values)
    return [Definition(module, node) for module, node in found if isinstance(node, Function | ast.ClassDef)]


def built_by(graph: CallGraph, model: Variable) -> Iterator[Place]:
    """What a model's variable, and those that it comes from, are bound to, in whatever file."""
    for link in chain(graph, model):
        yield from bound_to(graph, link)


def bound_to(graph: CallGraph, variable: Variable) -> Iterator[Place]:
    """What a variable is bound to: by assignments, and by calls that hand over a model as they build it, `fit(Net())`."""
    module = variable.scope.module
    for binding in module.bindings(variable):
        if binding.value is not None:
            yield module, binding.value
        elif binding.kind == "parameter":
            for caller, argument in graph.handed(variable):
                if isinstance(argument, ast.Call):
                    yield caller, argument


def parts_unread(graph: CallGraph, model: Variable) -> Iterator[Part]:
    """Layers with weights that no code of the project ever reads: they can get no gradient."""
    modules = graph.roles.project.modules
    if freezes(graph.roles, model):
        return
    readers = _readers(modules)
    named = {n.value for m in modules for n in m.walk(m.tree, ast.Constant) if isinstance(n.value, str)}
    for owner in made_of(graph, model):
        if not isinstance(owner.node, ast.ClassDef) or not _is_plain_module(graph.roles, owner):
            continue
        family = _family(graph.roles, owner)
        for variable, bindings in owner.module.attribute_bindings.items():
            name = variable.name.removeprefix("self.")
            if variable.scope.node is not owner.node or name in named or "." in name:
                continue
            if not family.isdisjoint(readers.get(name, ())):
                continue
            for binding in bindings:
                if binding.whole is not None and has_weights(graph.roles, owner.module, binding.whole):
                    yield Part(owner.module, owner.node, name, binding.statement.lineno)
                    break


def _readers(modules: list[Module]) -> dict[str, set[ast.AST | None]]:
    """The classes that read an attribute of each name of `self`; None stands for whoever asks another object for it."""
    found: dict[str, set[ast.AST | None]] = {}
    for module in modules:
        for node in module.walk(module.tree, ast.Attribute):
            if not isinstance(node.ctx, ast.Load) or is_only_copied(module, node):
                continue
            if getattr(module.parents[node], "attr", "") in _COMPUTES_NOTHING:
                continue
            scope = module.scope(node)
            own = (
                isinstance(node.value, ast.Name) and node.value.id == scope.self_name and scope.owner_class is not None
            )
            found.setdefault(node.attr, set()).add(scope.owner_class.node if own and scope.owner_class else None)
    return found


def _family(roles: Roles, owner: Definition) -> set[ast.AST | None]:
    """The classes whose `self` may be an object of a class, and None for code of no class."""
    project = roles.project
    found = [owner, *project.heirs(owner)]
    return {None, *[each.node for each in found], *[base.node for each in found for base in project.all_bases(each)]}


def is_only_copied(module: Module, node: ast.AST) -> bool:
    """`nn.TransformerEncoder(self.layer, 6)` makes copies of the layer, and trains those."""
    parent = module.parents[node]
    if isinstance(parent, ast.keyword):
        parent = module.parents[parent]
    return isinstance(parent, ast.Call) and parent.func is not node and module.qualified(parent.func) in _COPIES


def computes(graph: CallGraph, owner: Definition, name: str, depth: int = 0) -> bool:
    """Whether a model's part or method of that name runs layers with weights, and not by the model's own call."""
    method = graph.roles.project.method(owner, name)
    if method is None:
        values = [
            binding.value
            for variable, bindings in owner.module.attribute_bindings.items()
            if variable.scope.node is owner.node and variable.name == f"self.{name}"
            for binding in bindings
            if binding.value is not None
        ]
        return any(
            has_weights(graph.roles, m, part) for value in values for m, part in contents(graph, owner.module, value)
        )
    return depth < 4 and any(
        computes(graph, owner, call.func.attr, depth + 1)
        for call in method.module.walk(method.node, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    )


def runs_layers(graph: CallGraph, module: Module, method: ast.Attribute) -> bool:
    """Whether `model.encode`, also of the model in a wrapper (`model.module.encode`), runs layers past the model's forward."""
    model = graph.roles.value(module, without_wrapper(method.value))
    if model.owner is None or model.module is None:
        return False
    return computes(graph, Definition(model.module, model.owner), method.attr)


def without_wrapper(node: ast.expr) -> ast.expr:
    """`model` of `model.module`."""
    return node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node


def _is_plain_module(roles: Roles, owner: Definition) -> bool:
    """A module of torch, read by its own code alone, which names its parts."""
    if roles.project.base_names(owner) != {"torch.nn.Module"}:
        return False
    methods = {s.name: s for s in owner.node.body if isinstance(s, ast.FunctionDef) and s.name != "__init__"}
    computing = [method for name, method in methods.items() if name == "forward" or _gives_something(method)]
    for method in computing:  # what draws or loads weights, for its own sake, runs no layer
        called = [methods.get(node.attr) for node in walk(method) if isinstance(node, ast.Attribute)]
        computing += [each for each in called if each is not None and each not in computing]
    return not any(may_reach_any_part(method) for method in computing)


def _gives_something(method: ast.FunctionDef) -> bool:
    """Whether a method returns a value, or keeps one in the object."""
    return any(
        (isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None)
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
        for node in walk(method)
    )


def may_reach_any_part(method: ast.AST) -> bool:
    """Whether a method gets at parts of its module other than by their names."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _ANY_PART) or (is_call_of(node, "getattr", "vars"))
        for node in walk(method)
    )


def has_weights(roles: Roles, module: Module, value: ast.expr) -> bool:
    """Whether building a value makes weights: by a layer of a library, or by what it calls in the project."""
    return _makes_weights(roles, module, value, {module.scope(value).node})


def _makes_weights(roles: Roles, module: Module, node: ast.AST, seen: set[ast.AST]) -> bool:
    for call in module.walk(node, ast.Call):
        dotted = module.full_name(call.func)
        owner, _, name = dotted.rpartition(".")
        if owner.startswith("torch.nn") and name in _WITH_WEIGHTS and not _is_fixed(call):
            return True
        if dotted.startswith(_LIBRARY_MODELS):
            return True
        target = roles.target(module, call)
        if target is None or target.node in seen:
            continue
        seen.add(target.node)
        builds = isinstance(target.node, ast.ClassDef) or roles.role(module, call) & Role.MODEL
        if builds and _makes_weights(roles, target.module, target.node, seen):
            return True
    return False


def _is_fixed(call: ast.Call) -> bool:
    """`nn.Parameter(x, requires_grad=False)`."""
    return any(isinstance(v, ast.Constant) and v.value is False for v in arguments_at(call, 1, "requires_grad"))


def freezes(roles: Roles, model: Variable) -> bool:
    """Whether a file that runs with a model takes parameters out of training, perhaps those that are asked about."""
    return any(
        (node.attr == "requires_grad_" or (node.attr == "requires_grad" and isinstance(node.ctx, ast.Store)))
        for module in loaded_with(roles.project, model.scope.module)
        for node in module.walk(module.tree, ast.Attribute)
    )
