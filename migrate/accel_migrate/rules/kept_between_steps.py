"""AM811: what is kept from step to step, or sample to sample, is made of one process's batches, and trained by."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.notes.batch_rows import trains_on_share
from accel_migrate.analysis.notes.grown import find_grown
from accel_migrate.analysis.notes.kept import Kept, find_kept
from accel_migrate.analysis.notes.seeding import Seeding
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import note
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM811"


def find(context: Context) -> Iterator[Change]:
    training, script, module = context.training, context.script, context.module
    if training.distribution.joins:
        return  # the original ran on several processes already
    if not trains_on_share(script, training) and Seeding(script, training, context.settings.target).makes_the_same():
        return  # every process goes through the same, AM805 says
    loaded = script.loaded(training)  # another script may put something in on the way of a loss that both compute
    found = [(kept, _message) for kept in find_kept(script.graph, training.local, training.backwards)]
    for kept, message in [*found, *[(kept, _grown) for kept in find_grown(script, training)]]:
        if kept.module is module:
            yield note(context, CODE, kept.statement, message(context, kept, ""))
        elif kept.module in loaded and kept.module not in training.modules and training.place.module is module:
            where = f" ({kept.module.source.path.name}:{kept.statement.lineno})"
            yield note(context, CODE, training.place.after, message(context, kept, where))


def _message(context: Context, kept: Kept, where: str) -> str:
    keeps = f"`{kept.name}`{where} keeps what earlier steps put in, and the loss is computed from it"
    if kept.is_buffer and _is_prepared(context, kept):
        each = "a forward gives all the buffers of the main process, so it holds what that one's batches gave"
    else:
        each = "each has its own, of its own batches"
    return f"{keeps}: on N processes {each}; gather what is put in over the processes where it should hold that of all"


def _grown(context: Context, kept: Kept, where: str) -> str:
    return (
        f"`{kept.name}`{where} goes on from what samples before have put in, and a sample is made by it: on N processes each has "
        "its own, of the samples of its shard alone, as each worker of a loader has, so that the same sample may be another on "
        "each; fill it over all samples before prepare, or make a sample by its index alone"
    )


def _is_prepared(context: Context, kept: Kept) -> bool:
    """Whether the class that keeps it is a part of a prepared model."""
    return any(
        part.node is kept.owner
        for built in context.training.prepared
        if built.role == Role.MODEL
        for part in made_of(context.script.graph, built.variable)
    )


RULE = Rule(
    code=CODE,
    summary="a queue, a codebook, a bank, a vocabulary or the like that each process fills from its own batches",
    why="Processes share gradients, and nothing else. What a script carries from step to step besides its weights, and computes "
    "the loss from, grows out of one process's batches: a queue of keys, averages by hand, a pool of pictures. DDP copies "
    "registered buffers of a prepared model from the main process at each forward; all else differs from process to process. "
    "So does what a data set numbers or counts as its samples come.",
    example_before="queue = torch.cat([queue, keys])[-4096:]",
    find=find,
    safety=Safety.NOTE,
)
