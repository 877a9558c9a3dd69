"""Keys that begin with `module.`: what a wrapper writes into files, and what of a project counts on it or reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.storage.read_back import always_runs, known_as
from accel_migrate.analysis.storage.states import StateTaken, is_same, same_models
from accel_migrate.analysis.storage.storage import Storage
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import calls_method, unparse, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Module, Variable
from accel_migrate.flow.sequence import comes_first, follows
from accel_migrate.flow.torch_api import is_parallel, itself

_PREFIX = "module."
_DEPTH = 8


def states_with_prefix(graph: CallGraph, distribution: Distribution, storage: Storage) -> list[StateTaken]:
    """The states of models that had the wrapper's keys, and no longer have them."""
    wrapped = _Wrapped(graph.roles, graph, frozenset(wrapping.call for wrapping in distribution.wrappings))
    return [
        one
        for one in storage.taken
        if distribution.wrappings
        and one.of_model
        and isinstance(one.call.func, ast.Attribute)
        and wrapped.may_be(one.module, one.call.func.value)
    ]


def loads_of_old_files(distribution: Distribution, storage: Storage, module: Module) -> Iterator[ast.Call]:
    """`model.load_state_dict(...)` on what was a wrapper: files of the time before have its keys."""
    wrapped = [w.call for w in distribution.wrappings if w.module is module]
    for call in module.calls:
        if not calls_method(call, "load_state_dict"):
            continue
        owner = call.func.value
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            continue
        below = (
            not wrapped
            or any(follows(module, wrapping, call) for wrapping in wrapped)
            or module.scope(call).function is not _function(distribution, module)
        )
        if below and is_same(module, owner, storage.models) and not _takes_away(module, call):
            yield call


def _takes_away(module: Module, load: ast.Call) -> bool:
    """Whether weights lose the prefix for a load, or where it fails: `try: load(saved)`, `except: load(without(saved))`."""
    around: list[ast.AST] = [load]
    for above in module.ancestors(load):
        if isinstance(above, ast.Try) and any(module.holds(statement, load) for statement in above.body):
            around += above.handlers
    return any(
        calls_method(call, "replace", "removeprefix") and _is_prefix(call.args[0])
        for node in around
        for call in module.walk(node, ast.Call)
        if call.args
    )


def counts_on_prefix(module: Module) -> Iterator[ast.expr]:
    """Expressions that add, cut off or ask for the prefix, and mean something else once it is not there."""
    for node in module.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="startswith"), args=[first, *_]):
                found = _is_prefix(first) and not _only_takes_off(module, node)
            case ast.BinOp(left=first, op=ast.Add()) | ast.JoinedStr(values=[first, *_]):
                found = _is_prefix(first)
            case ast.Subscript(slice=ast.Slice() as cut):
                found = _cuts_prefix(module, cut)
            case _:
                continue
        if found:
            yield node


def _function(distribution: Distribution, module: Module) -> ast.AST | None:
    call = next(w.call for w in distribution.wrappings if w.module is module)
    return module.scope(call).function


@dataclass(frozen=True)
class _Wrapped:
    """Where the wrappers may be that go."""

    roles: Roles
    graph: CallGraph
    calls: frozenset[ast.Call]

    def may_be(self, module: Module, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression may be a wrapper: not `model.module`, and not `bare = model` in front of the wrapping."""
        node = itself(node)
        if node in self.calls or depth > _DEPTH:
            return True
        if _takes_out(node):
            return False
        match node:
            case ast.IfExp(body=one, orelse=other):
                return self.may_be(module, one, depth + 1) or self.may_be(module, other, depth + 1)
            case ast.Call():
                return self._returned(module, node, depth)
        variable = module.variable(node)
        if variable is None:
            return isinstance(node, ast.Name | ast.Attribute)
        found = reaching(module, node)
        if _is_other_choice(module, node) or any(_takes_out(binding.value) for binding in found):
            return False  # where there is a wrapper, the model is taken out of it
        return not found or any(self._bound(module, variable, binding, depth) for binding in found)

    def _bound(self, module: Module, variable: Variable, binding: Binding, depth: int) -> bool:
        if binding.assigned is not None:
            return self.may_be(module, binding.assigned, depth + 1)
        if binding.kind != "parameter":
            return True
        given = self.graph.handed(variable)
        return not given or any(self.may_be(caller, argument, depth + 1) for caller, argument in given)

    def _returned(self, module: Module, call: ast.Call, depth: int) -> bool:
        """Whether a function of the project may give it back; what else is called builds a model, or has it for a part."""
        target = self.roles.target(module, call)
        return target is not None and any(self.may_be(target.module, value, depth + 1) for value in target.returned)


def _takes_out(node: ast.expr | None, of: str = "") -> bool:
    """`model.module`"""
    return isinstance(node, ast.Attribute) and node.attr == "module" and of in ("", unparse(node.value))


def _is_other_choice(module: Module, node: ast.expr) -> bool:
    """Whether a model stands in one branch, and the other takes it out of a wrapper: `model.module if many else model`."""
    text = unparse(node)
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp):
            branches = [each if isinstance(each, list) else [each] for each in (parent.body, parent.orelse)]
            inside = [any(module.holds(part, node) for part in branch) for branch in branches]
            others = [part for branch, holds in zip(branches, inside) if not holds and any(inside) for part in branch]
            if any(
                isinstance(each, ast.expr) and _takes_out(each, text) for part in others for each in module.walk(part)
            ):
                return True
    return False


def _is_prefix(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (_PREFIX, "module")


def _cuts_prefix(module: Module, cut: ast.Slice) -> bool:
    """`key[7:]` or `key[len("module."):]`, unless the key was asked first."""
    lower = cut.lower
    if cut.upper is not None or lower is None:
        return False
    if isinstance(lower, ast.Call) and unparse(lower.func) == "len" and lower.args and _is_prefix(lower.args[0]):
        return not _asked(module, cut)
    return isinstance(lower, ast.Constant) and lower.value == len(_PREFIX) and _of_states(module, cut)


def _asked(module: Module, node: ast.AST) -> bool:
    return any(
        isinstance(parent, ast.If | ast.IfExp) and "startswith" in unparse(parent.test)
        for parent in module.ancestors(node)
    )


def _only_takes_off(module: Module, question: ast.AST) -> bool:
    """`if key.startswith("module."): key = key[7:]`: right with the prefix and without it."""
    for choice in module.ancestors(question):
        if isinstance(choice, ast.UnaryOp):
            return False
        if isinstance(choice, ast.If | ast.IfExp) and module.holds(choice.test, question):
            taken = choice.body if isinstance(choice.body, list) else [choice.body]
            parts = [part for each in taken for part in walk(each)]
            return any(isinstance(p, ast.Slice) or calls_method(p, "replace", "removeprefix") for p in parts)
    return False


def _of_states(module: Module, node: ast.AST) -> bool:
    """Whether it stands in a loop over the items of a mapping, and no question for the prefix is around it."""
    loops = [
        parent.iter if isinstance(parent, ast.For) else parent.generators[0].iter
        for parent in module.ancestors(node)
        if isinstance(parent, ast.For | ast.DictComp)
    ]
    return any(".items()" in unparse(one) or ".keys()" in unparse(one) for one in loops) and not _asked(module, node)


_DOWNLOADS = ("load_state_dict_from_url", "load_url")


def check_other_wrappers(graph: CallGraph, distribution: Distribution, storage: Storage) -> None:
    """Weights that a wrapper beside the training reads must go on fitting it."""
    going = {wrapping.call for wrapping in distribution.wrappings}
    writes = states_with_prefix(graph, distribution, storage)
    folders = {Path(one.module.source.path).parent for one in storage.taken}
    for module, wrapper, call in _loads(graph, storage) if going else ():
        where = f"line {call.lineno} of {graph.roles.project.file_name(module)} reads weights into a wrapper"
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


def loads_elsewhere(graph: CallGraph, storage: Storage) -> Iterator[tuple[Module, ast.Call]]:
    """Loads into wrappers of other files, of weights that the script may have saved."""
    for module, _, call in _loads(graph, storage):
        if not _is_apart(graph, storage, module, call):
            yield module, call


def _loads(graph: CallGraph, storage: Storage) -> Iterator[tuple[Module, ast.Call, ast.Call]]:
    """Each `wrapped.load_state_dict(...)` with the wrapper, unless the wrapped model is the training's own."""
    for module in graph.roles.project.modules:
        if b"DataParallel" not in module.source.data:
            continue
        for wrapper in module.calls:
            variable = _bound(module, wrapper)
            if variable is None or variable in storage.models:
                continue
            wrapped = same_models(graph, frozenset({variable})) | {variable}
            if _trains(graph.roles, wrapped):
                continue
            for other, call in graph.roles.project.calls:
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
