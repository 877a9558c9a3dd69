"""One source of chance for all processes: what a sampler draws on process 0, it draws everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from accel_runtime.collectives import Collectives
from accel_runtime.data.chance import equal, global_states, restore_global
from accel_runtime.data.generators import generators_in, set_state, state_of
from accel_runtime.data.seedable import SeedableRandomSampler

Item = TypeVar("Item")

# These draw nothing from a global generator.
DRAW_NOTHING = (SequentialSampler, SeedableRandomSampler)
# These draw everything they need from the global generator at their first item.
DRAW_AT_FIRST = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def shared_draws(sampler: Iterable[Item], inner: Any, collectives: Collectives, at_once: int = 1) -> Iterator[Item]:
    """Iterates the sampler as process 0 would. Generators of another state than its own stay as they are elsewhere.

    Process 0 draws from its global generators, so its stream of random numbers stays that of a plain script. Where all
    are seeded alike, all streams are that one. A sampler that may draw at any item is asked for `at_once` items at a time.
    """
    if type(inner) in DRAW_NOTHING:
        yield from sampler
        return
    own = global_states()
    carried = generators_in({"sampler": sampler, "inner": inner})
    states = {path: state_of(generator) for path, generator in carried.items()}
    first_process = collectives.broadcast_objects([(own, states)])[0]
    other = {name: state for name, state in own.items() if not equal(state, first_process[0][name])}
    restore_global(first_process[0])
    for path, state in first_process[1].items():
        set_state(carried[path], state)
    iterator = iter(sampler)
    if type(inner) in DRAW_AT_FIRST:
        first = list(islice(iterator, 1))
        restore_global({**global_states(), **other})
        yield from first
        yield from iterator
        return
    yield from _apart(iterator, other, at_once)


def _apart(iterator: Iterator[Item], other: dict[str, Any], at_once: int) -> Iterator[Item]:
    """An unknown sampler may draw at any item: in between its generators are put aside, equal on all processes."""
    items = list(islice(iterator, 1))
    drawn = global_states()
    # Process 0 goes on from the first draw, as a plain script would.
    restore_global({**drawn, **other})
    while items:
        yield from items
        own = global_states()
        restore_global(drawn)
        items = list(islice(iterator, at_once))
        drawn = global_states()
        restore_global(own)
