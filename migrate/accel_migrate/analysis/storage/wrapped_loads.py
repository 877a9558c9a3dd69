"""Files of weights that a wrapper's keys are counted on for: read into a wrapper that is not the training's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.storage.prefixes import states_with_prefix
from accel_migrate.analysis.storage.read_back import always_runs, known_as
from accel_migrate.analysis.storage.states import is_same, same_models
from accel_migrate.analysis.storage.storage import Storage
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import calls_method
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import comes_first
from accel_migrate.flow.torch_api import is_parallel

_DOWNLOADS = ("load_state_dict_from_url", "load_url")


def check_other_wrappers(roles: Roles, graph: CallGraph, distribution: Distribution, storage: Storage) -> None:
    """Weights that a wrapper beside the training reads must go on fitting it."""
    going = {wrapping.call for wrapping in distribution.wrappings}
    writes = states_with_prefix(roles, graph, distribution, storage)
    folders = {Path(one.module.source.path).parent for one in storage.taken}
    for module, wrapper, call in _loads(roles, graph, storage) if going else ():
        where = f"line {call.lineno} of {roles.project.file_name(module)} reads weights into a wrapper"
        if wrapper in going:
            raise NotMigrated(
                f"{where} that the training does not use: without it the files that fit so far, with `module.` in front of their "
                "keys, fit no more; load into the model itself there, before it is wrapped",
                (module, call),
            )
        if writes and Path(module.source.path).parent in folders and not _is_apart(graph, storage, module, call):
            raise NotMigrated(
                f"{where}, so their keys must begin with `module.`, and those that are saved without the training's wrapper do "
                "not; save and load the model itself (`model.module`) first",
                (distribution.wrappings[0].module, distribution.wrappings[0].call),
            )


def loads_elsewhere(roles: Roles, graph: CallGraph, storage: Storage) -> Iterator[tuple[Module, ast.Call]]:
    """Loads into wrappers of other files, of weights that the script may have saved."""
    for module, _, call in _loads(roles, graph, storage):
        if not _is_apart(graph, storage, module, call):
            yield module, call


def _loads(roles: Roles, graph: CallGraph, storage: Storage) -> Iterator[tuple[Module, ast.Call, ast.Call]]:
    """Each `wrapped.load_state_dict(...)` with the wrapper, unless the wrapped model is the training's own."""
    for module in roles.project.modules:
        if b"DataParallel" not in module.source.data:
            continue
        for wrapper in module.calls:
            variable = _bound(module, wrapper)
            if variable is None or variable in storage.models:
                continue
            wrapped = same_models(roles, graph, frozenset({variable})) | {variable}
            if _trains(roles, wrapped):
                continue
            for other, call in roles.project.calls:
                if _loads_into(other, call, wrapped) and not _comes_before(module, wrapper, other, call):
                    yield other, wrapper, call


def _bound(module: Module, call: ast.Call) -> Variable | None:
    """The variable that holds a wrapper, also behind `.cuda()`."""
    if not is_parallel(module.full_name(call.func)):
        return None
    statement = module.statement(call)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    return module.variable(statement.targets[0])


def _trains(roles: Roles, wrapped: frozenset[Variable]) -> bool:
    """Whether a backward pass runs where a wrapped model is held: another training, which is looked at by itself."""
    scopes = {variable.scope for variable in wrapped}
    return any(
        calls_method(call, "backward") and (module.scope(call) in scopes or module.scope(call).owner_class in scopes)
        for module, call in roles.project.calls
    )


def _loads_into(module: Module, call: ast.Call, wrapped: frozenset[Variable]) -> bool:
    if not calls_method(call, "load_state_dict"):
        return False
    owner = call.func.value
    if isinstance(owner, ast.Attribute) and owner.attr == "module":
        return False
    return is_same(module, owner, wrapped)


def _is_apart(graph: CallGraph, storage: Storage, module: Module, call: ast.Call) -> bool:
    """Whether no training but its own has saved the weights: they come from the network, or a script resumes from its file."""
    given = [*call.args, *[keyword.value for keyword in call.keywords if keyword.arg == "state_dict"]]
    read = [each for node in given[:1] for each in _read_by(module, node)]
    return bool(read) and all(each is not None and _is_own(graph, storage, module, each) for each in read)


def _read_by(module: Module, node: ast.expr, depth: int = 0) -> list[ast.Call | None]:
    """The calls that give some weights, through names and keys; None for what is not visible."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return [node]
    variable = module.variable(node)
    if not isinstance(node, ast.Name) or variable is None or depth > 5:
        return [None]
    values = [binding.value for binding in reaching(module, node)]
    found = [each for value in values if value is not None for each in _read_by(module, value, depth + 1)]
    return [*found, *[None for value in values if value is None]]


def _is_own(graph: CallGraph, storage: Storage, module: Module, read: ast.Call) -> bool:
    dotted = module.full_name(read.func)
    if dotted != "torch.load" or not read.args:
        return dotted.rpartition(".")[2] in _DOWNLOADS
    if always_runs(module, read):
        return False  # who reads the file in the first run has it from elsewhere
    names = known_as(graph, module, read.args[0])
    own = [call for call in module.calls if module.qualified(call.func) == "torch.save" and len(call.args) > 1]
    others = [(save.module, save.call) for save in storage.saves if len(save.call.args) > 1]
    saved = any(not names.isdisjoint(known_as(graph, module, call.args[1])) for call in own)
    return saved and all(names.isdisjoint(known_as(graph, file, call.args[1])) for file, call in others)


def _comes_before(module: Module, wrapper: ast.Call, other: Module, call: ast.Call) -> bool:
    """Whether the bare model is loaded first and wrapped then."""
    return module is other and comes_first(module, call, wrapper)
