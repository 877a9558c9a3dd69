"""One source of chance for all processes: what a sampler draws on process 0, it draws everywhere."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from accel_runtime.collectives import Collectives
from accel_runtime.data.seedable import SeedableRandomSampler

Item = TypeVar("Item")

# These draw nothing from a global generator.
DRAW_NOTHING = (SequentialSampler, SeedableRandomSampler)
# These draw everything they need from the global generator at their first item.
DRAW_AT_FIRST = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def shared_draws(sampler: Iterable[Item], inner: Any, collectives: Collectives) -> Iterator[Item]:
    """Iterates the sampler as process 0 would, and leaves the generators of the other processes alone.

    Process 0 draws from its global generators, so its stream of random numbers stays that of a plain script.
    """
    if type(inner) in DRAW_NOTHING:
        yield from sampler
        return
    owners = [owner for owner in (sampler, inner) if isinstance(getattr(owner, "generator", None), torch.Generator)]
    own = states_of_generators([])
    restore_generators(collectives.broadcast_objects([states_of_generators(owners)])[0], owners)
    iterator = iter(sampler)
    if type(inner) in DRAW_AT_FIRST:
        first = list(_first(iterator))
        if not collectives.world.is_main:
            restore_generators(own, [])
        yield from first
        yield from iterator
        return
    yield from _apart(iterator, own, is_main=collectives.world.is_main)


def _apart(iterator: Iterator[Item], own: dict[str, Any], is_main: bool) -> Iterator[Item]:
    """An unknown sampler may draw at any item: between items its generators are put aside, equal on all processes."""
    first = True
    while True:
        items = list(_first(iterator))
        drawn = states_of_generators([])
        # Process 0 goes on from the first draw, as a plain script would.
        restore_generators(drawn if is_main and first else own, [])
        if not items:
            return
        yield items[0]
        first = False
        own = states_of_generators([])
        restore_generators(drawn, [])


def _first(iterator: Iterator[Item]) -> Iterator[Item]:
    for item in iterator:
        yield item
        return


def states_of_generators(owners: list[Any]) -> dict[str, Any]:
    """The global generators, and those that the owners carry."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    states["own"] = [owner.generator.get_state() for owner in owners]
    return states


def restore_generators(states: dict[str, Any], owners: list[Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "numpy" in sys.modules and "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    for owner, state in zip(owners, states["own"]):
        owner.generator.set_state(state)
