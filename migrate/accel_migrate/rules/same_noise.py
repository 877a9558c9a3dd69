"""AM803: random numbers drawn in the loop are the same on every process, because all are seeded alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.seeding import Seeded, Seeding, library_of
from accel_migrate.edits import change
from accel_migrate.flow.nodes import unparse
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM803"
_RESEED = {"torch": "torch.manual_seed", "numpy": "np.random.seed", "random": "random.seed"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    seeding = Seeding(context.script, training)
    for call in module.calls:
        library = library_of(module, call)
        if library is None or not _in_training(context, call):
            continue
        seed = seeding.of(library)
        if seed.seeded is Seeded.ALIKE and seed.call is not None and seed.module is not None:
            where = (
                f"line {seed.call.lineno}"
                if seed.module is module
                else f"{seed.module.source.path.name}:{seed.call.lineno}"
            )
            message = (
                f"every process draws the same numbers here, because all are seeded alike ({where}); after prepare, if "
                f"accelerator.num_processes > 1: {_RESEED[library]}({unparse(seed.call.args[0])} + accelerator.process_index)"
            )
            yield change(CODE, call, message, loop=training.index, safety=Safety.NOTE)
            return


def _in_training(context: Context, call: ast.Call) -> bool:
    """Whether it is drawn for a training step, outside of the model itself."""
    module, training = context.module, context.training
    around = set(module.ancestors(call))
    if any(loop.trains and loop.statement in around for loop in training.loops):
        return True
    repeated = any(isinstance(parent, ast.For | ast.While) for parent in around)
    return repeated and any(b.function is module.scope(call).function for b in training.backwards)


RULE = Rule(
    code=CODE,
    name="same_noise",
    summary="noise that is equal on every process",
    why="One seed for all keeps weights and shuffling in step, and makes the noise of every process the same: the global batch "
    "then holds the same noise N times. Seeding each process apart must wait until prepare has agreed on all that is shared.",
    example_before="noise = torch.randn(batch_size, nz, device=device)",
    example_after="noise = torch.randn(batch_size, nz, device=device)",
    find=find,
    safety=Safety.NOTE,
)
