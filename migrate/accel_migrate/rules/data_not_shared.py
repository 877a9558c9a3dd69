"""AM805: a training without a loader that can be sharded does the same work on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.batch_rows import trains_on_share
from accel_migrate.analysis.notes.seeding import LAUNCHED, Seeded, Seeding
from accel_migrate.analysis.trainings.phases import is_entry
from accel_migrate.analysis.values.constructions import is_foreign_loader
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.unread import gone_through, unread_batches
from accel_migrate.edits import note
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM805"
_PART = "give each its own part, by accelerator.process_index and accelerator.num_processes"
_MORE = "as many backward passes, whatever it plays: where one makes more, it waits for the others for ever"
_OWN = f"seed each by accelerator.process_index, but only if every process then makes {_MORE}"
_PLAYS = {
    Seeded.ALIKE: f"plays the same games, since all are seeded alike, so N processes learn no more than one; {_OWN}",
    Seeded.APART: "plays games of its own, so N processes gather N times the experience, and each step averages over all; "
    f"see that every process makes {_MORE}",
    Seeded.UNKNOWN: f"plays by itself: the same games where all are seeded alike, which is not visible to the analysis; {_OWN}",
}
_MAKES = {
    Seeded.ALIKE: f"makes the same batches, since {{why}}, so N processes learn no more than one; {_PART}",
    Seeded.UNKNOWN: f"makes its batches by itself; whether they are the same is not visible to the analysis; {_PART}",
}
_ALL = f"makes the same batches, since nothing is seen to be drawn for them, so N processes learn no more than one; {_PART}"

_UNREAD = (
    "goes through all of `{}`, which is not visible to the analysis; if it is a DataLoader, hand its file over as well, or "
    f"prepare it; if it is not, {_PART}"
)


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    first = training.backwards[0]
    trained = [loop for loop in training.loops if loop.trains]
    if first.module is not module or trains_on_share(context.script, context.training):
        return
    if trained:
        yield from _chosen(context, trained)
        return
    unread = unread_batches(context.script.graph, training.backwards)
    told = _inside(context) or (_told(context) if unread is None else _UNREAD.format(unparse(unread)))
    message = f"no DataLoader is sharded: every process {told}"
    yield note(context, CODE, first.call, message)
    yield from _closure(context)


def _inside(context: Context) -> str:
    """Of a loader that a generator of the project builds, and hands out the batches of."""
    roles, module, first = context.script.roles, context.module, context.training.backwards[0]
    rounds = [loop for loop in module.ancestors(first.call) if isinstance(loop, ast.For)]
    parts = [part for loop in rounds for part in module.walk(loop.iter, ast.Name, ast.Call)]
    bound = [binding.value for part in parts if isinstance(part, ast.Name) for binding in module.bindings_of(part)]
    for value in (value for value in (*parts, *bound) if isinstance(value, ast.Call)):
        made = roles.target(module, value)
        if made is None or not any(made.module.walk(made.node, ast.Yield, ast.YieldFrom)):
            continue
        for call in made.module.walk(made.node, ast.Call):
            if roles.role(made.module, call) & Role.LOADER:
                where = module.place_of(made.module, call)
                return (
                    f"goes through all of the DataLoader that {unparse(value.func)}() builds ({where}), so N processes learn no "
                    "more than one; build it beside the model, so that it is prepared, or prepare it there for the training"
                )
    return ""


def _told(context: Context) -> str:
    """What each process trains on, as far as the seeds of what it draws from tell."""
    seeding = Seeding(context.script, context.training, context.settings.target)
    drawn = seeding.drawn()
    if seeding.plays:
        acts = any(name.startswith("torch.distributions") for m in seeding.files for name in m.imports.values())
        return _PLAYS[_played(seeding, {*drawn, "torch"} if acts or not drawn else {*drawn})]
    found = {library: seeding.of(library) for library in drawn}
    if (made := seeding.of_machine) is not None:
        where = context.module.place_of(*made)
        return f"makes its batches by itself, maybe by a generator that begins otherwise on each process ({where}); {_PART}"
    apart = [library for library, seed in found.items() if seed.known is Seeded.APART]
    if not drawn:
        lost = _lost(context)
        return _ALL if lost is None else _UNREAD.format(unparse(lost))
    if apart:
        seed = found[apart[0]]
        if seed.call is not None and seed.module is not None:
            where = context.module.place_of(seed.module, seed.call)
            return f"makes batches of its own, by a seed that differs by process ({where})"
        module, call = drawn[apart[0]]
        where = context.module.place_of(module, call)
        return (
            f"makes its batches by itself, and draws numbers of its own, because {apart[0]} is not seeded alike on all "
            f"({where}); {_PART}"
        )
    why = next((LAUNCHED for seed in found.values() if seed.call is None), "all are seeded alike")
    return _MAKES[next((s.known for s in found.values() if s.known is Seeded.UNKNOWN), Seeded.ALIKE)].format(why=why)


def _lost(context: Context) -> ast.expr | None:
    """What the loop around the backward pass goes through, where loaders are built: it may be one that was lost on the way."""
    module, roles = context.module, context.script.roles
    rounds = [loop for loop in module.ancestors(context.training.backwards[0].call) if isinstance(loop, ast.For)]
    read = gone_through(module, rounds[0].iter) if rounds else None
    files = context.script.loaded(context.training)
    built = any(roles.role(file, call) & Role.LOADER for file in files for call in file.calls)
    return read if built and isinstance(read, ast.Name | ast.Attribute | ast.Subscript) else None


def _played(seeding: Seeding, libraries: set[str]) -> Seeded:
    """Whether all processes play the same: what acts, and the environment with its actions, must be seeded alike."""
    seeds = [seeding.of(library) for library in libraries]
    known = [seed.known for seed in seeds]
    called = [(m, call.func, call) for m in seeding.files for call in m.calls if isinstance(call.func, ast.Attribute)]
    told = {
        unparse(function.value) for m, function, _ in called if function.attr == "seed" and not m.qualified(function)
    }
    actions = {
        unparse(f.value) for _, f, _ in called if f.attr == "sample" and unparse(f.value).endswith("action_space")
    }
    games = told or any(
        f.attr in ("reset", "make", "make_vec") and any(k.arg == "seed" for k in c.keywords) for _, f, c in called
    )
    known += [] if games else [Seeded.APART]
    known += [] if actions <= told else [Seeded.APART]
    return next((each for each in (Seeded.APART, Seeded.UNKNOWN) if each in known), Seeded.ALIKE)


def _chosen(context: Context, loops: list[LoaderLoop]) -> Iterator[Change]:
    """Of loaders in a dictionary, the one that is trained on could not be told; others have no name to prepare them by."""
    for loop in loops:
        loader = loop.module.variable(loop.loader)
        if loader is not None and is_foreign_loader(context.script.graph, loader):
            continue  # AM807 speaks of it
        if not context.training.holds(loader) and not isinstance(loop.loader, ast.Subscript):
            message = (
                f"`{unparse(loop.loader)}` is not a loader that could be prepared by its name, so it is not sharded and every "
                "process trains on all of the data; give it a name of its own before the training"
            )
            yield note(context, CODE, loop.statement, message)
        if is_entry(context.script.roles, loop.module, loop.loader):
            kept = unparse(loop.loader.value)  # type: ignore[attr-defined]
            message = (
                f"which loader of `{kept}` is trained on is not visible to the analysis, so none is sharded and every "
                f'process trains on all of the data; after prepare: {kept}["train"] = accelerator.prepare({kept}["train"]), '
                "with its own key"
            )
            yield note(context, CODE, loop.statement, message)


def _closure(context: Context) -> Iterator[Change]:
    for call in context.module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step" and call.args:
            if context.script.roles.role(context.module, call.func.value) & Role.OPTIMIZER:
                message = (
                    "the optimizer looks at the loss of this process when it searches, so on N processes with different data "
                    "they may take different steps; keep the data the same on all, or use an optimizer without a closure"
                )
                yield note(context, CODE, call, message)
                return


RULE = Rule(
    code=CODE,
    summary="no loader: every process trains on the same data",
    why="`prepare` shards what a DataLoader yields. Batches that are cut by hand, drawn at random or played out of an "
    "environment come to every process as they came to one.",
    example_before="x, y = get_batch()",
    find=find,
    safety=Safety.NOTE,
)
