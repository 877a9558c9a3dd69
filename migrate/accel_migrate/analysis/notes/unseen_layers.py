"""Calls that build the prepared models, or a part of them, and whose layers nobody can read.

Silent where every call of that code leads to code of the project, to torch, or to a library whose models are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.values.imported import brought_by
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.made_of import built_by, made_of
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.analysis.values.sources import contents
from accel_migrate.analysis.values.unread import Unseen
from accel_migrate.flow.libraries import is_library
from accel_migrate.flow.nodes import called_name, unparse
from accel_migrate.flow.program import default_of
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.torch_api import itself

# Libraries that have models, or find them in files; those of transformers for texts have no batch normalisation.
_MODELS = (
    "timm.", "torchvision.", "torchaudio.", "transformers.", "diffusers.", "monai.", "kornia.", "torch_geometric.", "dgl.",
    "torch.hub.load", "torch.load", "torch.jit.load", "ray.", "google.", "importlib.",
)  # fmt: skip
_WITHOUT = re.compile(
    r"torchvision\.(models\.(\w+\.)*(alexnet|vgg\d+|squeezenet\w+|vit_\w+|swin_\w+|convnext_\w+)|(?!models)\w+\..*)"
    r"|torchvision\.models\.(\w+\.)*[A-Z]\w+_Weights.*"
    r"|transformers\.(\w+\.)*(AutoModel|Auto\w+For(Seq|Tok|Caus|Mask|Quest|Mult|Next)\w+|(Distil|Ro)?[Bb]ert\w*|Albert\w*|Electra\w*"
    r"|XLNet\w*|XLMRoberta\w*|Deberta\w*|GPT\w*|OpenAI\w*|Opt\w*|OPT\w*|Llama\w*|T5\w*|MT5\w*|Bart\w*|Longformer\w*|\w*(Config|Tokenizer\w*))"
    r"(\..*)?"
)
_FOUND_BY_NAME = ("globals", "locals", "eval", "getattr", "vars")


def unseen_layers(graph: CallGraph, model: Variable) -> Iterator[Unseen]:
    """The calls of all that builds a model that cannot be read; the model itself where nothing is seen to build it."""
    values = list(built_by(graph, model))
    if not any(isinstance(node, ast.Call) for _, value in values for node in ast.walk(value)):
        yield Unseen(model.scope.module, _binding(model), model.name)
    seen_by_name = next(looked_up(graph, model), None) is not None
    nodes: list[tuple[Module, ast.AST]] = [*values]
    nodes += [(part.module, part.node) for part in made_of(graph, model)]
    for module, node in nodes:
        for call in module.walk(node, ast.Call):
            loads = module.qualified(call.func) == "torch.load"
            # a model that was built, and is read back
            again = loads and (len(values) > 1 or _gives_weights(module, call))
            if _builds(graph.roles, module, call) and not again and not _is_visible(graph, module, call, seen_by_name):
                yield Unseen(module, call, f"{unparse(call.func)}()")


def looked_up(graph: CallGraph, model: Variable) -> Iterator[Module]:
    """The files in one of which a model is found by its name: `archs.__dict__[args.arch]()`, `globals()[args.arch]()`."""
    project = graph.roles.project
    for module, value in _named_by(graph, model):
        for node in module.walk(value):
            found: list[Module | None] = []
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in ("globals", "locals", "eval"):
                found = [module, *[project.imported_module(module, target) for target in module.imports.values()]]
                found += [project.imported_module(module, t.rpartition(".")[0] or t) for t in module.imports.values()]
            elif isinstance(node, ast.Attribute) and node.attr == "__dict__":
                found = [_imported(graph.roles, module, node.value)]
            elif name in ("getattr", "vars") and isinstance(node, ast.Call) and node.args:
                found = [_imported(graph.roles, module, node.args[0])]
            for each in dict.fromkeys(found):
                if each is not None:
                    path = each.source.path
                    package = path.parent if path.name == "__init__.py" else None
                    yield each
                    yield from brought_by(project, [each])
                    yield from (other for other in project.modules if package in other.source.path.parents)


def _named_by(graph: CallGraph, model: Variable) -> Iterator[tuple[Module, ast.expr]]:
    """What builds a model, and what is called there by a name: `Kind = getattr(nets, name)`, `model = Kind()`."""
    for module, value in built_by(graph, model):
        yield module, value
        for call in module.walk(value, ast.Call):
            if isinstance(call.func, ast.Name):
                yield from contents(graph, module, call.func)


def _binding(variable: Variable) -> ast.AST:
    bindings = variable.scope.module.bindings(variable)
    return bindings[0].statement if bindings else variable.scope.node


def _builds(roles: Roles, module: Module, call: ast.Call) -> bool:
    """Whether a call may build layers: not one that a forward makes, nor what is raised."""
    scope = module.scope(call)
    name = getattr(scope.function, "name", "")
    runs = name == "forward" or (name == "__call__" and roles.project.is_in_torch_module(module, call))
    return not runs and not isinstance(module.parents[call], ast.Raise)


def _gives_weights(module: Module, load: ast.Call) -> bool:
    """Whether what is loaded goes into a model that is there: `model.load_state_dict(torch.load(path))`, or by a name."""
    statement = module.statement(load)
    names = [module.variable(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    return any(
        part is load or (isinstance(part, ast.Name) and module.variable(part) in names)
        for call in module.calls
        if called_name(call) == "load_state_dict"
        for argument in call.args
        for part in module.walk(argument)
    )


def _is_visible(graph: CallGraph, module: Module, call: ast.Call, seen_by_name: bool) -> bool:
    if graph.roles.target(module, call) is not None:
        return True
    called = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    if _is_found_by_name(call.func):
        return seen_by_name
    dotted = module.qualified(called)
    if dotted is not None:
        in_project = graph.roles.project.definition(module, called) is not None
        known = is_library(dotted) and (not dotted.startswith(_MODELS) or _WITHOUT.fullmatch(dotted) is not None)
        return in_project or known or itself(call) is not call
    is_table = isinstance(call.func, ast.Subscript)  # `self.kinds[name]()`
    if (is_table or isinstance(called, ast.Name)) and (variable := module.variable(called)) is not None:
        return _is_own(variable) or _is_known(graph, module, called, seen_by_name)
    return True  # a method of an object: what built that is looked at where it is built


def _is_own(variable: Variable) -> bool:
    """`self` or `cls` of a method, which is of a class of the project."""
    scope = variable.scope
    return scope.is_function and scope.owner_class is scope.parent and variable.name == scope.self_name


def _is_found_by_name(node: ast.expr) -> bool:
    """`getattr(nets, name)`, `globals()[name]`, `nets.__dict__[name]`."""
    found = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(found, ast.Call):
        return getattr(found.func, "id", "") in _FOUND_BY_NAME
    return isinstance(found, ast.Attribute) and found.attr == "__dict__"


def _is_known(graph: CallGraph, module: Module, called: ast.expr, seen_by_name: bool) -> bool:
    """Whether a variable that is called holds a class or a function that can be read, in a table or by itself."""
    parts = [(owner, part) for owner, part in contents(graph, module, called) if part is not called]
    variable = module.variable(called)
    is_local = variable is not None and variable.scope.is_function
    default = default_of(variable.scope.node, variable.name) if is_local else None  # type: ignore[union-attr]
    parts += [(module, default)] if default is not None else []
    # filled later
    parts = [(owner, part) for owner, part in parts if not (isinstance(part, ast.Dict) and not part.keys)]
    if not seen_by_name and any(_is_found_by_name(part) for _, part in parts):
        return False
    return bool(parts) and all(
        graph.roles.project.definition(owner, part) is not None
        or is_library(owner.qualified(part) or "?")
        or not isinstance(part, ast.Name | ast.Attribute)
        or owner.variable(part) is not None
        for owner, part in parts
    )


def _imported(roles: Roles, module: Module, holder: ast.expr) -> Module | None:
    dotted = module.qualified(holder)
    return roles.project.imported_module(module, dotted) if dotted is not None else None
