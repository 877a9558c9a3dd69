"""DistributedSamplers: a prepared loader shards its batches by itself, so they go."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import Replacement, Shared
from accel_migrate.analysis.values.constructions import built_calls
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import calls_method, is_falsy, is_none, unparse, walk
from accel_migrate.flow.scopes import Module, Variable

CODE = "AM703"
_GOES = "a prepared loader shards its batches by itself"


def find_samplers(module: Module, staying: frozenset[ast.Call]) -> tuple[list[Replacement], list[Shared]]:
    """What becomes of each DistributedSampler of a file; raises NotMigrated for one that does more than shard.

    Those of evaluations that are sharded by hand stay.
    """
    replacements: list[Replacement] = []
    shared: list[Shared] = []
    for call in module.calls:
        if call in staying or module.full_name(call.func).rpartition(".")[2] != "DistributedSampler":
            continue
        parent = module.parents[call]
        if isinstance(parent, ast.keyword) and parent.arg == "sampler":
            shared.append(_shared(module, parent, call))
            continue
        whole = parent if isinstance(parent, ast.IfExp) else call
        statement = module.parents[whole]
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise NotMigrated("a DistributedSampler is made without a name of its own", (module, call))
        if isinstance(whole, ast.IfExp):
            other = whole.orelse if whole.body is call else whole.body
            if not is_none(other):
                text = module.source.code(other)
                replacements.append(Replacement(CODE, module, whole, text, _GOES))
                continue
        variable = module.variable(statement.targets[0])
        if variable is None:  # `options["sampler"] = DistributedSampler(rows)`
            raise NotMigrated("a DistributedSampler is made without a name of its own", (module, call))
        choice = _choice(module, statement)
        if choice is not None:
            text = "\n".join(module.source.code(other) for other in choice.orelse)
            replacements.append(Replacement(CODE, module, choice, text, _GOES))
            replacements += _set_epochs(module, variable)
            continue
        if _feeds_batches(module, variable) and module.imports.get("torch") == "torch":
            replacements.append(Replacement(CODE, module, call, _plain(module, call), _GOES))
            replacements += _set_epochs(module, variable)
            continue
        replacements += _definitions(module, variable, statement)
        uses, loaders = _uses(module, variable, call)
        replacements += uses
        shared += loaders
    return replacements, shared


def _choice(module: Module, statement: ast.Assign) -> ast.If | None:
    """The `if distributed:` that makes DistributedSamplers, with an `else:` that makes others under the same names."""
    choice = module.parents[statement]
    if not isinstance(choice, ast.If) or statement not in choice.body:
        return None
    made = [s.value if isinstance(s, ast.Assign) else None for s in (*choice.body, *choice.orelse)]
    names = [
        [unparse(s.targets[0]) for s in part if isinstance(s, ast.Assign)] for part in (choice.body, choice.orelse)
    ]
    plain = all(isinstance(value, ast.Call) and len(unparse(value).splitlines()) == 1 for value in made)
    return choice if plain and names[0] == names[1] else None


def _feeds_batches(module: Module, variable: Variable) -> bool:
    """Whether a sampler is handed to a BatchSampler, which needs one of its own kind in its place."""
    return any(
        module.full_name(call.func).startswith("torch.utils.data.")
        and module.full_name(call.func).endswith("BatchSampler")
        and bool(call.args)
        and module.variable(call.args[0]) == variable
        for call in module.calls
    )


def _plain(module: Module, sampler: ast.Call) -> str:
    """The sampler of a single process that draws as a DistributedSampler does."""
    said = {k.arg: k.value for k in sampler.keywords}
    drawn = said.get("shuffle") or (sampler.args[3] if len(sampler.args) > 3 else None)
    data = sampler.args[0] if sampler.args else said.get("dataset")
    if data is None or (drawn is not None and not isinstance(drawn, ast.Constant)):
        raise NotMigrated("how a DistributedSampler draws is not visible to the analysis", (module, sampler))
    kind = "SequentialSampler" if is_falsy(drawn) else "RandomSampler"
    return f"torch.utils.data.{kind}({module.source.code(data)})"


def _set_epochs(module: Module, variable: Variable) -> Iterator[Replacement]:
    for call in module.calls:
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "set_epoch":
            statement = module.statement(call)
            if module.variable(function.value) == variable and isinstance(statement, ast.Expr):
                yield Replacement(CODE, module, statement, None, "a prepared loader reshuffles in each epoch")


def _definitions(module: Module, variable: Variable, statement: ast.Assign) -> Iterator[Replacement]:
    for binding in module.bindings(variable):
        if binding.value is None or not (binding.statement is statement or is_none(binding.value)):
            raise NotMigrated(
                f"`{variable.name}` is a DistributedSampler in one branch and another sampler in the other; keep the one "
                "for a single process",
                (module, binding.statement),
            )
        yield Replacement(CODE, module, binding.statement, None, _GOES)


def _uses(module: Module, variable: Variable, sampler: ast.Call) -> tuple[list[Replacement], list[Shared]]:
    replacements: list[Replacement] = []
    shared: list[Shared] = []
    for node in module.reads(variable):
        parent = module.parents[node]
        statement = module.statement(node)
        if isinstance(parent, ast.keyword) and parent.arg == "sampler":
            shared.append(_shared(module, parent, sampler))
        elif isinstance(parent, ast.Attribute) and parent.attr == "set_epoch" and isinstance(statement, ast.Expr):
            replacements.append(
                Replacement(CODE, module, statement, None, "a prepared loader reshuffles in each epoch")
            )
        elif not _asks_for_none(module, node):
            raise NotMigrated(f"`{variable.name}` does more than shard a loader", (module, node))
    return replacements, shared


def _asks_for_none(module: Module, node: ast.expr) -> bool:
    """`shuffle=(sampler is None)`, or `if sampler is not None: sampler.set_epoch(epoch)`."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.keyword):
            return parent.arg == "shuffle"
        if isinstance(parent, ast.If):
            return all(isinstance(s, ast.Expr) and "set_epoch" in unparse(s) for s in parent.body)
        if isinstance(parent, ast.stmt):
            return False
    return False


def _shared(module: Module, keyword: ast.keyword, sampler: ast.Call) -> Shared:
    loader = module.parents[keyword]
    if not isinstance(loader, ast.Call):
        raise NotMigrated("a DistributedSampler is handed to something that is not a loader", (module, sampler))
    said = {k.arg: k.value for k in sampler.keywords}
    drawn = said.get("shuffle") or (sampler.args[3] if len(sampler.args) > 3 else None)
    value: str | None = module.source.code(drawn) if drawn is not None else "True"
    if is_falsy(drawn):
        value = None
    shuffle = next((k for k in loader.keywords if k.arg == "shuffle"), None)
    if (
        value is not None
        and _is_chosen(module, keyword.value, sampler)
        and (shuffle is None or is_falsy(shuffle.value))
    ):
        raise NotMigrated(
            "this loader is shuffled by its DistributedSampler, and on one process not at all; say `shuffle=` for both",
            (module, loader),
        )
    return Shared(module, loader, keyword, shuffle, value)


def _is_chosen(module: Module, given: ast.expr, sampler: ast.Call) -> bool:
    """Whether a loader has a DistributedSampler or none at all."""
    if isinstance(module.parents[sampler], ast.IfExp):
        return True
    bindings = module.bindings_of(given)
    return any(binding.value is not None and is_none(binding.value) for binding in bindings)


def epochs_told(
    graph: CallGraph, module: Module, shared: list[Shared], replaced: list[Replacement]
) -> tuple[list[Replacement], list[ast.Call]]:
    """`loader.sampler.set_epoch(epoch)` goes where the loader's sampler went, and stays where that stays."""
    replacements: list[Replacement] = []
    staying: list[ast.Call] = []
    gone = {one.call for one in shared}
    for call in module.calls:
        loader = _told(call)
        statement = module.statement(call)
        if loader is None or not graph.roles.role(module, loader) & Role.LOADER or not isinstance(statement, ast.Expr):
            continue
        built = [made for _, made in built_calls(graph, module.variable(loader), Role.LOADER)]
        if built and all(one in gone or _is_told_plainly(one, replaced) for one in built):
            replacements.append(
                Replacement(CODE, module, statement, None, "a prepared loader reshuffles in each epoch")
            )
        elif gone.intersection(built):
            raise NotMigrated(
                f"`{unparse(loader)}` has a DistributedSampler in one place only; give each loader its own name",
                (module, call),
            )
        else:
            staying.append(call)
    return replacements, staying


def is_told(graph: CallGraph, sharded: Shared) -> bool:
    """Whether a `set_epoch` may reach the sampler that a loader had; of what is not known to be another it may."""
    sampler = sharded.module.variable(sharded.sampler.value)
    for module, call in graph.roles.project.calls:
        if not calls_method(call, "set_epoch"):
            continue
        loader = _told(call)
        if loader is not None:
            built = [made for _, made in built_calls(graph, module.variable(loader), Role.LOADER)]
            if not built or sharded.call in built:
                return True
        elif not _is_another_sampler(module, call.func.value, sampler):
            return True
    return False


def _is_another_sampler(module: Module, owner: ast.expr, sampler: Variable | None) -> bool:
    values = [binding.value for binding in module.bindings_of(owner)]
    made = [module.full_name(v.func) if isinstance(v, ast.Call) else "" for v in values]
    return module.variable(owner) != sampler and bool(made) and all(n.endswith("Sampler") for n in made)


def _told(call: ast.Call) -> ast.expr | None:
    """The loader of `loader.sampler.set_epoch(...)`, `loader.batch_sampler.sampler.set_epoch(...)`."""
    if not calls_method(call, "set_epoch"):
        return None
    owner = call.func.value
    while isinstance(owner, ast.Attribute) and owner.attr in ("sampler", "batch_sampler"):
        owner = owner.value
    return owner if owner is not call.func.value else None


def _is_told_plainly(loader: ast.Call, replaced: list[Replacement]) -> bool:
    """Whether a loader draws by a sampler that took the place of a DistributedSampler: it has no epochs."""
    given = {
        node.id for keyword in loader.keywords if keyword.arg in ("sampler", "batch_sampler")
        for node in walk(keyword.value) if isinstance(node, ast.Name)
    }  # fmt: skip
    stores = (n for replacement in replaced if replacement.text is not None for n in walk(replacement.statement))
    return any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in given for n in stores)
