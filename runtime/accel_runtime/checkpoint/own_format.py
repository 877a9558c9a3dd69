"""A verified checkpoint of ours, decoded for this process, whatever number of processes saved it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from accel_runtime.checkpoint.encoding import State
from accel_runtime.checkpoint.likeness import Likeness
from accel_runtime.checkpoint.loaded import Kept, Loaded
from accel_runtime.checkpoint.reading import Pairs, Saved
from accel_runtime.checkpoint.run_state import kept_kind, numbered
from accel_runtime.errors import CheckpointError
from accel_runtime.strategies import OwnStates
from accel_runtime.world import World


def loaded_from(saved: Saved, world: World, likeness: Likeness) -> Loaded:
    """All parts at once: nothing is put back before everything could be read."""
    manifest = saved.manifest
    mine = saved.state(f"rank_{world.rank}") if saved.has(f"rank_{world.rank}") else None
    return Loaded(
        folder=saved.folder,
        processes=manifest.processes,
        models=[
            Kept(saved.path(part), saved.weights(part, likeness.of_model(index)))
            for index, part in enumerate(parts_of(saved, "model"))
        ],
        optimizers=[
            kept_kind(_kept(saved, part, likeness.of_optimizer(index)))
            for index, part in enumerate(parts_of(saved, "optimizer"))
        ],
        schedulers=[kept_kind(_kept(saved, part)) for part in parts_of(saved, "scheduler")],
        objects=[
            _kept(saved, part, likeness.of_object(index))
            for index, part in enumerate(parts_of(saved, "custom", first="custom_0"))
        ],
        scaler=_kept(saved, "scaler") if saved.has("scaler") else None,
        trackers=_kept(saved, "trackers") if saved.has("trackers") else None,
        random=None if mine is None else mine["random"],
        progress={**_progress(saved, world, mine), "gradients": _gradients(saved, world, mine, likeness)},
        own_states=OwnStates(manifest.processes, lambda rank: saved.state(f"rank_{rank}").get("strategy")),
        epoch=manifest.epoch,
        step=manifest.step,
        batch=manifest.batch,
    )


def parts_of(saved: Saved, kind: str, first: str | None = None) -> list[str]:
    """The names of all things of a kind."""
    found: list[str] = []
    while saved.has(part := first if first and not found else numbered(kind, len(found))):
        found.append(part)
    return found


def _kept(saved: Saved, part: str, pairs: Pairs | None = None) -> Kept:
    return Kept(saved.path(part), saved.state(part, pairs))


def _progress(saved: Saved, world: World, mine: State) -> dict[str, State]:
    """This process's own, or on another number of processes what all of them agree on."""
    if saved.manifest.processes == world.size and mine is not None:
        return mine  # type: ignore[no-any-return]
    return saved.state(_ranks(saved)[0])  # type: ignore[no-any-return]


def _gradients(saved: Saved, world: World, mine: State, likeness: Likeness) -> list[dict[str, Any]]:
    """Of each model, the gradients so far."""
    if saved.has("gradients"):
        return saved.state("gradients", likeness.of_gradients())  # type: ignore[no-any-return]
    if saved.manifest.processes == world.size and mine is not None and not likeness.models:
        return mine["gradients"]  # type: ignore[no-any-return]
    return _averaged([saved.state(part)["gradients"] for part in _ranks(saved)])


def _ranks(saved: Saved) -> list[str]:
    ranks = [f"rank_{rank}" for rank in range(saved.manifest.processes)]
    if missing := [part for part in ranks if not saved.has(part)]:
        raise CheckpointError(
            f"{saved.folder} was saved by {saved.manifest.processes} processes on several machines and lacks "
            f"{missing[0]}; load it on as many, or copy the folders of all machines into one"
        )
    return ranks


def _averaged(gradients: list[list[dict[str, Tensor]]]) -> list[dict[str, Any]]:
    """Each process gets the mean, so that their average at the end of the window is what it would have been."""
    return [
        {name: sum(one[name] for one in of_model) / len(of_model) for name in of_model[0]}
        for of_model in zip(*gradients)
    ]
