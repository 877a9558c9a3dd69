"""A verified checkpoint of ours, decoded for this process, whatever number of processes saved it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from accel_runtime.checkpoint.encoding import State
from accel_runtime.checkpoint.layouts import Layouts
from accel_runtime.checkpoint.loaded import Kept, Loaded
from accel_runtime.checkpoint.reading import Pairs, Saved
from accel_runtime.checkpoint.run_state import kept_kind, numbered
from accel_runtime.errors import CheckpointError
from accel_runtime.strategies import OwnStates
from accel_runtime.world import World


@dataclass(frozen=True, slots=True)
class Most:
    """How many things of each kind are read at most."""

    models: int
    optimizers: int
    schedulers: int
    objects: int


def loaded_from(saved: Saved, world: World, layouts: Layouts, most: Most) -> Loaded:
    """All parts at once: nothing is put back before everything could be read."""
    manifest = saved.manifest
    mine = saved.state(f"rank_{world.rank}") if saved.has(f"rank_{world.rank}") else None
    return Loaded(
        folder=saved.folder,
        processes=manifest.processes,
        models=[
            Kept(saved.path(part), saved.weights(part, layouts.of_model(index)))
            for index, part in enumerate(parts_of(saved, "model", most.models))
        ],
        optimizers=[
            kept_kind(_kept(saved, part, layouts.of_optimizer(index)))
            for index, part in enumerate(parts_of(saved, "optimizer", most.optimizers))
        ],
        schedulers=[kept_kind(_kept(saved, part)) for part in parts_of(saved, "scheduler", most.schedulers)],
        objects=[
            _kept(saved, part, layouts.of_object(index))
            for index, part in enumerate(parts_of(saved, "custom", most.objects, first="custom_0"))
        ],
        scaler=_kept(saved, "scaler") if saved.has("scaler") else None,
        trackers=_kept(saved, "trackers") if saved.has("trackers") else None,
        random=None if mine is None else mine["random"],
        progress={**_progress(saved, world, mine), "gradients": _gradients(saved, world, mine, layouts)},
        own_states=OwnStates(manifest.processes, lambda rank: saved.state(f"rank_{rank}").get("strategy")),
        epoch=manifest.epoch,
        step=manifest.step,
        batch=manifest.batch,
    )


def parts_of(saved: Saved, kind: str, most: int | None = None, first: str | None = None) -> list[str]:
    """The names of all things of a kind."""
    found: list[str] = []
    while saved.has(part := first if first and not found else numbered(kind, len(found))):
        found.append(part)
    if most is not None and len(found) > most:
        raise CheckpointError(
            f"{saved.folder} holds {len(found)} {kind}(s) and this run has {most}; prepare or register the same ones in "
            "the same order as when it was saved"
        )
    return found


def _kept(saved: Saved, part: str, pairs: Pairs | None = None) -> Kept:
    return Kept(saved.folder / f"{part}.json", saved.state(part, pairs))


def _progress(saved: Saved, world: World, mine: State) -> dict[str, State]:
    """This process's own, or on another number of processes what all of them agree on."""
    if saved.manifest.processes == world.size and mine is not None:
        return mine  # type: ignore[no-any-return]
    return saved.state(_ranks(saved)[0])  # type: ignore[no-any-return]


def _gradients(saved: Saved, world: World, mine: State, layouts: Layouts) -> list[dict[str, Any]]:
    """Of each model, the gradients so far."""
    if saved.has("gradients"):
        return saved.state("gradients", layouts.of_gradients())  # type: ignore[no-any-return]
    if saved.manifest.processes == world.size and mine is not None and not layouts.models:
        return mine["gradients"]  # type: ignore[no-any-return]
    return _averaged(saved.state(part)["gradients"] for part in _ranks(saved))


def _ranks(saved: Saved) -> list[str]:
    ranks = []
    for rank in range(saved.manifest.processes):
        if not saved.has(part := f"rank_{rank}"):
            raise CheckpointError(
                f"{saved.folder} was saved by {saved.manifest.processes} processes on several machines and lacks {part}; "
                "load it on as many, or copy the folders of all machines into one"
            )
        ranks.append(part)
    return ranks


def _averaged(gradients: Iterator[list[dict[str, Tensor]]]) -> list[dict[str, Any]]:
    """Each process gets the mean, so that their average at the end of the window is what it would have been."""
    sums: list[dict[str, Any]] = next(gradients)
    processes = 1
    # One after the other: those of all processes together may not fit into memory.
    for of_rank in gradients:
        sums = [{name: total[name] + one[name] for name in total} for total, one in zip(sums, of_rank)]
        processes += 1
    return [{name: total / processes for name, total in of_model.items()} for of_model in sums]
