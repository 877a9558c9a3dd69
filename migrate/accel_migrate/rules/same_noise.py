"""AM803: random numbers drawn while training are the same on every process, because all are seeded alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.notes.batch_rows import trains_on_share
from accel_migrate.analysis.notes.drawn import evaluation_draws, find_drawn, streams_trained_on
from accel_migrate.analysis.notes.seeding import Seed, Seeded, Seeding
from accel_migrate.edits import note, places
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM803"
_RESEED = {"torch": "torch.manual_seed", "numpy": "np.random.seed", "random": "random.seed"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    if not trains_on_share(context.script, training):
        return  # AM805 says that all train on the same, and what comes of seeds that differ
    seeding = Seeding(context.script, training, context.settings.target)
    told: dict[str, str] = {}
    place: ast.AST | None = None
    seeds: dict[str, Seed] = {}
    advised: dict[str, Seed] = {}
    sure = True
    # What every process evaluates whole, and draws for, would be another figure on each, and so would be what is decided by it.
    whole = [each.loop for each in training.evaluations if isinstance(each, Whole) and not each.on_main]
    together = [loop for loop in whole if evaluation_draws(context.script, training, loop)]
    streams = streams_trained_on(context.script, training)
    for drawn in find_drawn(context.script, training, module, seeding):
        seed = seeding.of(drawn.library)
        alike = seed.seeded is Seeded.ALIKE or (seed.seeded is Seeded.UNKNOWN and seed.launched)
        if alike and drawn.what not in told:
            here = drawn.module is module
            told[drawn.what] = f"{drawn.what} ({module.place_of(drawn.module, drawn.call)})"
            seeds.setdefault(drawn.library, seeding.last(drawn.library) or seed)
            if drawn.reseeds and not together and not streams:
                advised[drawn.library] = seeds[drawn.library]
            sure = sure and drawn.reseeds
            place = place or (drawn.call if here and not drawn.what.startswith("for") else training.place.after)
    if place is not None:
        where = ", ".join(dict.fromkeys(seed.told(module) for seed in seeds.values()))
        prepared = training.place.module, training.place.after
        reseed = "; ".join(
            f"{_RESEED[library]}({seed.number(*(seed.run or prepared))} + accelerator.process_index)"
            for library, seed in advised.items()
        )
        again = [last for library in advised if (last := seeding.last(library)) is not None]
        after = again[-1].place(module) if again else "prepare"
        # A loader that shuffles may draw more of torch's numbers on one process than on another.
        sure = sure and "torch" not in seeds and all(seed.seeded is Seeded.ALIKE for seed in seeds.values())
        draws = "draws" if sure else "may draw"
        message = f"every process {draws} the same numbers, {' and '.join(told.values())}, because all are seeded alike ({where})"
        if advised:
            message += f"; after {after}, if accelerator.num_processes > 1: {reseed}"
        elif streams:
            read = places(module, streams)
            message += (
                f"; seeding them apart is not advised, because all must read the same samples of a stream ({read})"
            )
        elif together:
            evaluated = places(module, [(loop.module, loop.statement) for loop in together])
            message += (
                f"; seeding them apart is not advised, because every process goes through an evaluation by itself ({evaluated}), "
                "and by what it draws would come to other figures"
            )
        yield note(context, CODE, place, message)


RULE = Rule(
    code=CODE,
    summary="noise that is equal on every process",
    why="One seed for all, the script's own or that of `accel launch`, keeps data, weights and shuffling in step, and makes the "
    "noise of every process the same: the global batch then holds the same noise N times. Seeding each process apart must wait "
    "until prepare has agreed on all that is shared, and is not advised where every process evaluates whole and may draw for it: "
    "their figures, and what is decided by them, would part.",
    example_before="noise = torch.randn(batch_size, nz, device=device)",
    find=find,
    safety=Safety.NOTE,
)
