"""AM801: on N processes a step sees N batches, and the learning rate is as it was.

Silent where no loader that is trained on is sharded, and where the original ran on several processes already.
"""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.analysis.evaluation.by_batch import Summed
from accel_migrate.analysis.notes.batch_numbers import batch_numbers, lengths_taken_before
from accel_migrate.analysis.notes.batch_rows import can_be_split, read_whole_before, takes_in_more
from accel_migrate.analysis.notes.stored import stored_at_samples
from accel_migrate.edits import note, places
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM801"


def find(context: Context) -> Iterator[Change]:
    training = context.training
    if training.place.module is context.module and takes_in_more(context.script, training):
        message = (
            "on N processes each step consumes N batches, and a pass through the data takes N times fewer steps; the learning "
            f"rate and batch_size are as they were: change one of them{_keeps_batch(context)}, if training should go on as on "
            "one process"
        )
        worker = training.distribution.worker
        divides = worker is not None and worker.count is not None
        if not divides and any(wrapping.is_data_parallel for wrapping in training.distribution.wrappings):
            message += "; where DataParallel split one batch over several GPUs, divide batch_size by N to keep it"
        but = ", but for those that are averaged (AM806)" if any(d.is_number for d in training.decisions) else ""
        if any(isinstance(e, Summed) and e.loop.trains for e in training.evaluations):
            but = ", but for those that are added up (AM404) over what all processes trained on, also to fill the last round"
        message += f"; figures of training that are printed, logged or written are of one process's shard{but}"
        message += _numbered(context)
        yield note(context, CODE, training.place.after, message)
    whole = read_whole_before(context.script, training)
    if whole is not None and whole[0] is context.module:
        message = (
            "no sampler sharded this loader, so each of N processes went through all of its data; now it is sharded, and "
            "an epoch has N times fewer steps"
        )
        yield note(context, CODE, whole[1], message)
    elif training.distribution.shared and not takes_in_more(context.script, training):
        lengths = [node for module, node in lengths_taken_before(context.script, training) if module is context.module]
        if lengths:
            message = (
                f"a length that is taken before prepare ({places(context.module, [(context.module, n) for n in lengths])}) was "
                "that of one process's shard, and is that of all batches now; divide it by accelerator.num_processes"
            )
            yield note(context, CODE, lengths[0], message)


def _keeps_batch(context: Context) -> str:
    """How the batch stays as it was by whoever starts the script."""
    if not can_be_split(context.script, context.training):
        return ""
    way = "Accelerator(split_batches=True)" if context.settings.target == "accelerate" else "accel launch --keep-batch"
    return f", or use `{way}` (batch_size / N rows for each process; not for a script that needs batch_size rows)"


def _numbered(context: Context) -> str:
    """Where the script goes by the number of a batch, or by how many there are."""
    found = batch_numbers(context.script, context.training)
    told = ""
    if found:
        where = places(context.module, found)
        told += f"; what goes by the number of a batch ({where}) comes N times later in the data, or never"
    stored = stored_at_samples(context.script, context.training)
    if stored:
        told += (
            f"; what is stored at the places of samples ({places(context.module, stored)}) has those of one process's shard, and "
            "the rest as it was"
        )
    lengths = lengths_taken_before(context.script, context.training)
    if lengths:
        told += (
            f"; a length that is taken before prepare ({places(context.module, lengths)}) is that of all batches, of which a "
            "process has one in N"
        )
    return told


RULE = Rule(
    code=CODE,
    summary="the global batch grows with the number of processes",
    why="`batch_size` is what one process consumes at a time. Whether to divide it by the number of processes, to scale the "
    "learning rate or to leave both is the author's choice; nothing of it is changed.",
    example_before="loader = DataLoader(data, batch_size=32)",
    find=find,
    safety=Safety.NOTE,
)
