"""AM706: the launcher starts the processes, so `mp.spawn` becomes one plain call."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import change, note, piece_changes, replace_node
from accel_migrate.flow.program import default_of
from accel_migrate.items import without_items
from accel_migrate.plan import Change, Edit, Substitute
from accel_migrate.rule import Context, Rule

CODE = "AM706"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    spawned = training.distribution.spawned
    if spawned is not None and spawned.module is module:
        source = module.source
        passed = ", ".join(source.code(argument) for argument in spawned.arguments)
        lost = {name for name, _ in spawned.lost}
        parameters = [*spawned.function.args.posonlyargs, *spawned.function.args.args]
        call = f"{spawned.function.name}({passed})"
        edits: list[Edit] = [
            replace_node(source, spawned.call, call) if spawned.choice is None else Substitute(spawned.choice, (call,))
        ]
        gone = [parameter for parameter in parameters if parameter.arg in lost]
        edits += without_items(source, [(one, default_of(spawned.function, one.arg) or one) for one in gone])
        message = "`accel launch --num_processes N` starts the processes"
        yield change(context, CODE, spawned.call, message, edits)
    yield from piece_changes(context, CODE)
    worker = training.distribution.worker
    if worker is not None and worker.module is module:
        asked = module.source.code(worker.choice.test)
        message = (
            f"`{asked}` no longer starts processes, and the script's own options for ranks and GPUs have no effect any more: "
            "`accel launch --num_processes N` starts them and gives each its rank and its GPU"
        )
        yield note(context, CODE, worker.choice, message)


RULE = Rule(
    code=CODE,
    summary="`mp.spawn(main, ...)` becomes `main(...)`",
    why="Processes are started by the launcher, on one machine or on many, and the script is the same on one process. What the "
    "function got about its rank and the number of processes it asks of the Accelerator.",
    example_before="mp.spawn(main, args=(world_size, args), nprocs=world_size)",
    example_after="main(args)",
    find=find,
)
