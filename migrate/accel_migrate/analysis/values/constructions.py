"""The calls that build what a variable holds, looked up inside the project's own functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import all_arguments, is_falsy, is_none, unparse, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable

# Loaders of graphs cut their data by themselves. Some are torch's own, that collate graphs.
_FOREIGN = ("dgl.", "torch_geometric.")
_INDEXED = ("torch.utils.data.TensorDataset", "torchvision.datasets.", "dgl.data.", "torch_geometric.datasets.")
_FARTHEST = 200
_POSITIONS = {"batch_sampler": 4, "collate_fn": 6, "drop_last": 8}  # of a DataLoader's options
_LENGTHENS = re.compile(r"pad|max\(|cat\(|concatenate\(|extend\(")  # in a function that makes a batch of samples
_GRAPHS = {
    "torch_geometric.loader.DataLoader", "torch_geometric.loader.DenseDataLoader", "torch_geometric.data.DataLoader",
    "dgl.dataloading.GraphDataLoader",
}  # fmt: skip

Made = tuple[Module, ast.Call]
Option = tuple[Module, ast.expr | None]


def constructions(roles: Roles, variable: Variable, role: Role) -> Iterator[Made]:
    module = variable.scope.module
    bindings = module.bindings(variable)
    parts = [part for binding in bindings for part in _made_into(roles, module, binding, role)]
    for binding in bindings:
        if binding in parts:
            continue
        if (origin := _imported(roles, variable, binding)) is not None:
            yield from constructions(roles, origin, role)
        if isinstance(binding.value, ast.Call):
            target = roles.function(module, binding.value)
            if target is None:
                if not binding.path:
                    yield module, binding.value
                continue
            made = (
                [] if _is_ragged(binding) else all_constructions(roles, None, module, binding.value, binding.path) or []
            )
            yield from [each for each in made if roles.role(*each) & role] or _calls(roles, target, role)


def _made_into(roles: Roles, module: Module, binding: Binding, role: Role) -> Iterator[Binding]:
    """What a name held before, that is something else: the data set in `train = DataLoader(train)`."""
    call = binding.value
    if isinstance(call, ast.Call) and roles.role(module, call) & role:
        for argument in all_arguments(call):
            for each in reaching(module, argument) if isinstance(argument, ast.Name) else ():
                if each is not binding and isinstance(each.value, ast.Call):
                    yield from () if roles.role(module, each.value) & role else (each,)


def built_calls(graph: CallGraph, variable: Variable | None, role: Role) -> list[Made]:
    """The calls that build what a variable holds, under all names that it was handed over by."""
    return [made for link in chain(graph, variable) for made in constructions(graph.roles, link, role)]


def _calls(roles: Roles, target: Definition, role: Role) -> Iterator[Made]:
    """The calls in a function that make something of a role, and not by another function."""
    for node in walk(target.node):
        if isinstance(node, ast.Call) and roles.role(target.module, node) & role:
            inner = roles.function(target.module, node)
            if inner is None:
                yield target.module, node


def all_constructions(
    roles: Roles, graph: CallGraph | None, module: Module, node: ast.expr, path: tuple[int, ...] = ()
) -> list[Made] | None:
    """All calls that may have made what an expression is, or the part of it at a path; None if there may be others.

    What is kept in a list or a dictionary may have been exchanged since; what comes by a parameter needs the calls.
    """
    made: list[Made] = []
    pending = [(module, node, path)]
    for owner, part, at in pending:
        found: list[tuple[Module, ast.expr | None, tuple[int, ...]]] = []
        target = roles.target(owner, part) if isinstance(part, ast.Call) else None
        if isinstance(part, ast.Call) and not at and (target is None or isinstance(target.node, ast.ClassDef)):
            made.append((owner, part))
            continue
        if is_none(part):
            continue
        if target is not None and not isinstance(target.node, ast.ClassDef) and not target.node.decorator_list:
            found = [(target.module, each, at) for each in target.returned]
        elif isinstance(part, ast.Tuple) and at[:1] and not any(isinstance(e, ast.Starred) for e in part.elts):
            found = [(owner, each, at[1:]) for each in part.elts[at[0] : at[0] + 1]]
        elif isinstance(part, ast.IfExp):
            found = [(owner, part.body, at), (owner, part.orelse, at)]
        elif (variable := owner.variable(part)) is not None:
            found = [
                each for binding in owner.bindings(variable) for each in _bound(roles, graph, variable, binding, at)
            ]
        if not found or len(pending) > _FARTHEST:
            return None
        for file, value, rest in found:
            if value is None:
                return None
            if (file, value, rest) not in pending:
                pending.append((file, value, rest))
    return made


def _bound(
    roles: Roles, graph: CallGraph | None, variable: Variable, binding: Binding, path: tuple[int, ...]
) -> list[tuple[Module, ast.expr | None, tuple[int, ...]]]:
    """What one binding gives a variable, with the path in it; None for what is not visible."""
    module = variable.scope.module
    if binding.kind == "parameter" and graph is not None:
        return [(caller, argument, path) for caller, _, argument in graph.given(variable)]
    if binding.kind == "assign" and not _is_ragged(binding):
        return [(module, binding.value, (*binding.path, *path))]
    if (origin := _imported(roles, variable, binding)) is not None:
        other = origin.scope.module
        return [each for b in other.bindings(origin) for each in _bound(roles, graph, origin, b, path)]
    return [(module, None, path)]


def _imported(roles: Roles, variable: Variable, binding: Binding) -> Variable | None:
    """The name of another file that an import binds here."""
    module = variable.scope.module
    dotted = module.imports.get(variable.name) if binding.kind == "import" else None
    return roles.project.imported_variable(module, dotted) if dotted is not None else None


def _is_ragged(binding: Binding) -> bool:
    """`first, *rest, last = pair()`: which part of the value a name gets depends on how many there are."""
    targets = binding.statement.targets if isinstance(binding.statement, ast.Assign) else []
    return any(isinstance(part, ast.Starred) for target in targets for part in walk(target))


def _given(graph: CallGraph, module: Module, loader: ast.expr, name: str) -> Iterator[Option]:
    """Each value that a loader may be given for an option; None for one that is not visible.

    Where not all calls that make the loader are visible, or one unpacks its options, every mention in the project counts.
    """
    made = all_constructions(graph.roles, graph, module, loader)
    torchs = all(m.full_name(c.func).endswith("DataLoader") and graph.roles.target(m, c) is None for m, c in made or ())
    unpacked = [(owner, k.value) for owner, call in made or () for k in call.keywords if k.arg is None]
    unpacked += [(owner, a) for owner, call in made or () for a in call.args if isinstance(a, ast.Starred)]
    if made is None or not torchs or unpacked:
        for each in graph.roles.project.modules:
            yield from ((each, value) for value in _mentioned(each, name))
    for owner, value in unpacked:
        bindings = owner.bindings_of(value)
        if not bindings or not all(_is_spelled_out(owner, binding) for binding in bindings):
            yield owner, None
    for owner, call in made or ():
        yield from ((owner, keyword.value) for keyword in call.keywords if keyword.arg == name)
        yield from ((owner, argument) for argument in call.args[_POSITIONS[name] :][:1])


def options_of(module: Module, call: ast.Call) -> dict[str | None, list[ast.expr]]:
    """All that a call may be given for each keyword, also by `**options`; what of those is not visible stands under None."""
    found: dict[str | None, list[ast.expr]] = {}
    for keyword in call.keywords:
        spread = _entries(module, keyword.value) if keyword.arg is None else None
        for name, value in [(keyword.arg, keyword.value)] if spread is None else spread:
            found.setdefault(name, []).append(value)
    return found


def _entries(module: Module, options: ast.expr) -> list[tuple[str | None, ast.expr]] | None:
    """The entries of a dictionary that is written out, or of each that it may be; None where it is not."""
    match options:
        case ast.IfExp(body=body, orelse=orelse):
            return _of_either(module, [body, orelse])
        case ast.Dict(keys=keys, values=values):
            named = [(key.value if isinstance(key, ast.Constant) else None, v) for key, v in zip(keys, values)]
            return [(name if isinstance(name, str) else None, value) for name, value in named]
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return [(keyword.arg, keyword.value) for keyword in options.keywords]
    variable = module.variable(options)
    assigned = [binding.assigned for binding in module.bindings(variable)]
    return None if variable is None or not assigned or _is_filled(module, variable) else _of_either(module, assigned)


def _of_either(module: Module, options: Sequence[ast.expr | None]) -> list[tuple[str | None, ast.expr]] | None:
    found: list[tuple[str | None, ast.expr]] = []
    for each in options:
        entries = _entries(module, each) if each is not None else None
        if entries is None:
            return None
        found += entries
    return found


def _is_filled(module: Module, variable: Variable) -> bool:
    """Whether entries are added to a dictionary after it is written out: `options["sampler"] = s`, `options.update(..)`."""
    owners = [node.value for node in module.walk(module.tree, ast.Subscript) if not isinstance(node.ctx, ast.Load)]
    owners += [c.func.value for c in module.calls if isinstance(c.func, ast.Attribute)]
    return any(isinstance(owner, ast.Name) and module.variable(owner) == variable for owner in owners)


def _is_spelled_out(module: Module, binding: Binding) -> bool:
    """`options = {"num_workers": 2}`, `dict(...)`, `**options`: what is in it stands in the project."""
    written = binding.value is not None and _entries(module, binding.value) is not None
    return binding.kind == "parameter" or written


def _mentioned(module: Module, name: str) -> Iterator[ast.expr | None]:
    """What a file gives an option by its name, as an argument or in a dictionary."""
    for call in module.calls:
        yield from (keyword.value for keyword in call.keywords if keyword.arg == name)
        if module.full_name(call.func).endswith("DataLoader"):
            yield from call.args[_POSITIONS[name] :][:1]
    keys: set[ast.AST | None] = set()
    for node in module.walk(module.tree, ast.Dict):
        keys |= {*node.keys}
        yield from (value for key, value in zip(node.keys, node.values) if _is_text(key, name))
    yield from (None for node in module.walk(module.tree, ast.Constant) if _is_text(node, name) and node not in keys)


def _is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def is_foreign_loader(graph: CallGraph, loader: Variable) -> bool:
    """Whether a loader, under whatever name, comes from a library whose batches and sampling are its own."""
    names = list(chain(graph, loader))  # the chain itself is kept and shared
    for name in names:
        for module, call in constructions(graph.roles, name, Role.LOADER):
            made = module.full_name(call.func)
            if made.startswith(_FOREIGN) and (made not in _GRAPHS or _deals_out(call)):
                return True
        module = name.scope.module
        for binding in module.bindings(name):  # `loader = dataset`
            other = module.variable(binding.value) if isinstance(binding.value, ast.Name) else None
            if other is not None and other not in names:
                names += [link for link in chain(graph, other) if link not in names]
    return False


def _deals_out(call: ast.Call) -> bool:
    """`GraphDataLoader(data, use_ddp=True)` has a sampler of its own for many processes."""
    asked = [*call.args[2:], *[keyword.value for keyword in call.keywords if keyword.arg in ("use_ddp", None)]]
    return any(not is_falsy(value) for value in asked)


def collates_graphs(graph: CallGraph, loader: Variable) -> bool:
    """Whether the batches of a loader are graphs, whose rows are not those of its samples."""
    built = built_calls(graph, loader, Role.LOADER)
    return any(module.full_name(call.func) in _GRAPHS for module, call in built)


def pads_batches(graph: CallGraph, module: Module, loader: ast.expr) -> bool:
    """Whether a loader may collate by a function that pads, or is out of sight: batches may then differ in their length."""
    return next(padding(graph, module, loader), None) is not None


def padding(graph: CallGraph, module: Module, loader: ast.expr) -> Iterator[tuple[Module, ast.expr | None]]:
    """What a loader collates by, where its batches may differ in their length, or have other rows than their samples."""
    for owner, collate in _given(graph, module, loader, "collate_fn"):
        if is_none(collate):
            continue
        body = _collating(graph, owner, collate) if collate is not None else None
        if body is None or _LENGTHENS.search(unparse(body)):
            yield owner, collate


def _collating(graph: CallGraph, module: Module, collate: ast.expr) -> ast.AST | None:
    """The function that makes a batch of samples, or the class of an object that does, where that can be read."""
    function = graph.roles.project.definition(module, collate)
    if isinstance(collate, ast.Lambda) or function is not None:
        return function.node if function is not None else collate
    made = all_constructions(graph.roles, graph, module, collate) or []
    classes = [target.node for owner, call in made if (target := graph.roles.target(owner, call)) is not None]
    return classes[0] if len(classes) == len(made) == 1 else None


def may_drop_last(graph: CallGraph, module: Module, loader: ast.expr) -> bool:
    """Whether a loader may leave out its last batch: where batches are dealt out, a whole round of them may go."""
    return any(
        not is_falsy(value)
        for name in ("drop_last", "batch_sampler")
        for _, value in _given(graph, module, loader, name)
    )


def draws_order(module: Module, call: ast.Call) -> bool:
    """Whether a DataLoader is told to shuffle, or leaves the order to a sampler."""
    said = options_of(module, call)
    shuffle = [*said.get("shuffle", ()), *call.args[2:3]]
    drawn = any(isinstance(value, ast.Constant) and value.value is True for value in shuffle)
    return drawn or len(call.args) > 3 or bool(said.keys() & {"sampler", "batch_sampler"})


def has_length(graph: CallGraph, module: Module, loader: ast.expr) -> bool:
    """Whether a loader tells the number of its batches: its data are known to, and no stream."""
    made = all_constructions(graph.roles, graph, module, loader)
    data = [(m, a) for m, call in made or () for a in [*call.args[:1], *_keyword(call, "dataset")]]
    found = [(owner, all_constructions(graph.roles, graph, owner, part)) for owner, part in data]
    return bool(found) and all(calls and all(_is_indexed(graph.roles, *each) for each in calls) for _, calls in found)


def _keyword(call: ast.Call, name: str) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg == name]


def _is_indexed(roles: Roles, module: Module, data: ast.Call) -> bool:
    made = roles.made(module, data)
    if made is None:
        return module.full_name(data.func).startswith(_INDEXED)
    methods = {part.name for part in made.node.body if isinstance(part, ast.FunctionDef)}
    return {"__len__", "__getitem__"} <= methods and "__iter__" not in methods


def is_torchs_sampler(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a sampler of torch that draws from all of the data."""
    owner, _, name = module.full_name(call.func).rpartition(".")
    return owner.startswith("torch.utils.data") and name.endswith("Sampler") and name != "DistributedSampler"
