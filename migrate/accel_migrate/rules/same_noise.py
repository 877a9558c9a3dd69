"""AM803: random numbers drawn in the loop are the same on every process, because all are seeded alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.scopes import Module
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
    for owner, call in _drawn(context, seeding):
        library = library_of(owner, call)
        seed = seeding.of(library) if library is not None else None
        if library is None or seed is None or seed.call is None or seed.module is None:
            continue
        if seed.seeded is Seeded.ALIKE:
            here = "here" if owner is module else f"in {_place(module, owner, call)}"
            message = (
                f"every process draws the same numbers {here}, because all are seeded alike "
                f"({_place(module, seed.module, seed.call)}); after prepare, if accelerator.num_processes > 1: "
                f"{_RESEED[library]}({unparse(seed.call.args[0])} + accelerator.process_index)"
            )
            place = call if owner is module else training.place.after
            yield change(CODE, place, message, loop=training.index, safety=Safety.NOTE)
            return


def _place(module: Module, owner: Module, call: ast.Call) -> str:
    return f"line {call.lineno}" if owner is module else f"{owner.source.path.name}:{call.lineno}"


def _drawn(context: Context, seeding: Seeding) -> Iterator[tuple[Module, ast.Call]]:
    """What training steps draw outside of the models: in this file, or for its loops in files that are not changed."""
    module, training, script = context.module, context.training, context.script
    yield from ((module, call) for call in module.calls if _in_training(context, call))
    loops = [loop for loop in training.loops if loop.trains and loop.module is module]
    reached = {f for loop in loops for f in script.graph.reached_from(loop.statement, script.roles, module)}
    for owner in seeding.files if training.place.module is module else ():
        outside = [f for f in reached & owner.functions.keys() if owner.functions[f].owner_class is None]
        if owner not in training.modules:
            yield from ((owner, call) for call in owner.calls if owner.scope(call).function in outside)


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
