"""AM809: an order or a split of the data that every process draws for itself: by a seed, or a generator, of its own."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from accel_migrate.analysis.notes.elsewhere import calls_on_import, reached_elsewhere
from accel_migrate.analysis.notes.seeding import SEEDS, Seed, Seeding, is_of_machine, libraries_of, library_of
from accel_migrate.analysis.values.imported import importers_of
from accel_migrate.analysis.values.loops import iterated_loaders
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import note
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import is_none, unparse
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.flow.sequence import follows
from accel_migrate.import_lines import import_line
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM809"
_ORDERS = {"permutation", "shuffle", "sample", "randperm", "choice", "choices"}
_SPLITS = {
    "torch.utils.data.random_split": ("torch", "generator", 2),
    "sklearn.model_selection.train_test_split": ("numpy", "random_state", None),
    "sklearn.model_selection.ShuffleSplit": ("numpy", "random_state", None),
    "sklearn.model_selection.StratifiedShuffleSplit": ("numpy", "random_state", None),
    "sklearn.utils.shuffle": ("numpy", "random_state", None),
    "sklearn.utils.resample": ("numpy", "random_state", None),
}
_SEED = {"torch": "torch.manual_seed", "numpy": "np.random.seed", "random": "random.seed"}
_OVERLAP = "the processes' shares of the data overlap and miss samples"
_EACH_SAMPLE = ("__getitem__", "__iter__", "__call__", "forward")


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    if training.distribution.joins:
        return
    sharded = any(built.role == Role.LOADER for built in training.prepared)
    seeding = Seeding(context.script, training, context.settings.target)
    drawn = ((library, call) for call in module.calls if (library := _drawn(module, call)) and _is_run(context, call))
    for library, call in drawn:
        seed = seeding.of(library, (module, call))
        if seed.may_differ and (sharded or _splits(module, call)):
            told = _told(library, seed, module, sharded)
            yield note(context, CODE, call, f"each process {told}")
            return
    for outer in module.calls:
        for owner, function in reached_elsewhere(context.script, training, module, outer):
            place = _drawn_in(owner, function, seeding)
            if place and not sharded and not _splits(owner, place[1]):
                continue
            if place and not training.timing.after_prepare(module, outer):
                library, drawing = place
                told = _told(library, seeding.of(library, (owner, drawing)), module, sharded)
                message = f"each process, in {owner.source.path.name}:{drawing.lineno}, {told}"
                yield note(context, CODE, outer, message)
                return
    if sharded:
        yield from _generator(context)
        yield from _on_import(context)


def _generator(context: Context) -> Iterator[Change]:
    """`rng = np.random.default_rng()`, which no seed of the script or of the launch reaches."""
    module = context.module
    for call in module.calls:
        if is_of_machine(module, call) and _is_run(context, call):
            message = (
                f"`{unparse(call)}` begins with a number of the machine, another one on each process: if what it draws decides "
                f"which sample stands where, {_OVERLAP}; give it one number"
            )
            yield note(context, CODE, call, message)
            return


def _on_import(context: Context) -> Iterator[Change]:
    """What another file draws while it is imported, which is before a script seeds anything."""
    training = context.training
    if training.place.module is not context.module:
        return
    before, ahead = _imported_ahead(context)
    for owner, call in calls_on_import(context.script, training):
        library = _drawn(owner, call) if owner in ahead else None
        if library is not None and not _is_seeded_before(owner, call, library):
            file = owner.source.path.name
            message = (
                f"each process draws an order or a choice of its own while {file} is imported (line {call.lineno}{before}): if "
                f"it decides which sample stands where, {_OVERLAP}; call {_SEED[library]} with one number before, in {file}"
            )
            yield note(context, CODE, training.place.after, message)
            return


def _imported_ahead(context: Context) -> tuple[str, Collection[Module]]:
    """The files that may be imported above accel_runtime, which seeds all processes of a launch alike, and how to say so."""
    project, module, start = context.script.project, context.module, context.training.start
    if context.settings.target == "accelerate":
        return "", project.modules
    if start.module is not module or importers_of(project, module):
        return ", if that is before accel_runtime is", project.modules
    line = import_line(module, start.statement, f"from {context.settings.target} import ...")
    at = module.tree.body.index(line.anchor)
    above = module.tree.body[: at + 1 if line.where == "after" else at]
    return ", before accel_runtime is", {*closure(project.imports_in(module, above), project.imports)}


def _is_seeded_before(module: Module, call: ast.Call, library: str) -> bool:
    seeds = [other for other in module.calls_of(SEEDS) if library in libraries_of(module, other)]
    return any(follows(module, seed, call) for seed in seeds)


def _splits(module: Module, call: ast.Call) -> bool:
    return (module.qualified(call.func) or "") in _SPLITS or _is_split_of_datasets(module, call)


def _is_split_of_datasets(module: Module, call: ast.Call) -> bool:
    """`dataset.train_test_split(...)` of Hugging Face's datasets, which draws from numpy's generator."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "train_test_split"
    return named and module.qualified(call.func) is None


def _told(library: str, seeded: Seed, module: Module, sharded: bool) -> str:
    seed = _SEED[library]
    if not sharded:
        return (
            f"draws a split of its own, because {library} is not seeded alike on all{seeded.unless(module)}: what one holds out, "
            f"others train on; call {seed} with one number before"
        )
    return (
        f"draws an order or a choice of its own, because {library} is not seeded alike on all{seeded.unless(module)}: if it "
        f"decides which sample stands where, {_OVERLAP}; call {seed} with one number before"
    )


def _drawn(module: Module, call: ast.Call) -> str | None:
    """The library whose global generator decides on an order or a split here."""
    dotted = module.qualified(call.func) or ""
    if dotted in _SPLITS:
        library, keyword, position = _SPLITS[dotted]
        told = [k.value for k in call.keywords if k.arg == keyword] or (
            call.args[position : position + 1] if position is not None else []
        )
        return library if all(is_none(v) for v in told) else None
    if _is_split_of_datasets(module, call):
        told = [k.value for k in call.keywords if k.arg in ("seed", "generator", "shuffle")]
        plain = all(isinstance(v, ast.Constant) and (v.value is None or v.value is True) for v in told)
        return "numpy" if plain else None
    if _samples_rows(module, call):
        return "numpy"
    global_one = library_of(module, call)
    ordered = global_one is not None and (dotted.rpartition(".")[2] in _ORDERS or _is_compared(module, call))
    return global_one if ordered else None


def _samples_rows(module: Module, call: ast.Call) -> bool:
    """`table.sample(frac=1)` of pandas, which draws from numpy's generator."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "sample" and module.qualified(call.func) is None
    said = {keyword.arg for keyword in call.keywords}
    return named and not said.isdisjoint({"frac", "n"}) and "random_state" not in said


def _is_compared(module: Module, call: ast.Call) -> bool:
    """`np.random.uniform(0, 1, n) < share`: each sample's side is drawn."""
    return any(isinstance(parent, ast.Compare) for parent in module.ancestors(call) if isinstance(parent, ast.expr))


def _drawn_in(owner: Module, function: Function, seeding: Seeding) -> tuple[str, ast.Call] | None:
    for call in owner.calls:
        library = _drawn(owner, call) if owner.scope(call).function is function else None
        if library is not None and seeding.of(library, (owner, call)).may_differ:
            return library, call
    return None


def _is_run(context: Context, call: ast.Call) -> bool:
    """Whether it is drawn once, before the training: not for each sample, nor in a function that nothing calls."""
    module, graph = context.module, context.script.graph
    function = module.scope(call).function
    if context.training.timing.after_prepare(module, call) or context.training.flow.on_some(module, call):
        return False
    loops = [parent for parent in module.ancestors(call) if isinstance(parent, ast.For)]
    if any(iterated_loaders(context.script.roles, module, loop.iter) for loop in loops):
        return False  # an order within a batch
    if function is None:
        return True
    for method in module.functions:
        if getattr(method, "name", "") in _EACH_SAMPLE:
            if function is method or function in graph.reached_from(method, module):
                return False
    return bool(graph.sites.get(function))


RULE = Rule(
    code=CODE,
    summary="an order of the data that every process draws for itself",
    why="A prepared loader gives each process its shard by position. Where every process has shuffled or split the data for "
    "itself, one position is another sample on each: some are trained on twice, some never, and training and validation mix. "
    "Our runtime seeds all processes alike: they draw the same order unless the script seeds each by a number of its own, or "
    "draws from a generator that has no seed. Accelerate does not.",
    example_before="train, held_out = random_split(data, [900, 100])",
    find=find,
    safety=Safety.NOTE,
)
