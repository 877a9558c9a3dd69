"""What decides the order of a loader's data: generators and changing values, wherever the script keeps them."""

from __future__ import annotations

import copy
import pickle
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset, IterableDataset

from accel_runtime.data.generators import SCALARS, generators_in, reached, set_state, state_of
from accel_runtime.data.iteration import Loader
from accel_runtime.errors import CheckpointError

CONTAINERS = (list, tuple, set, dict, torch.Tensor, numpy.ndarray)


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of chance at one moment: the global generators, and those that the loader's own objects carry."""

    random: dict[str, Any]
    own: dict[str, Any]

    def restore(self, loader: Loader) -> None:
        restore_global(self.random)
        restore_own(self.own, loader)


def moment_of(loader: Loader) -> Moment:
    return Moment(global_states(), own_states(loader))


def global_states() -> dict[str, Any]:
    """The generators that everything in this process draws from unless it has one of its own."""
    return {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": numpy.random.get_state()}


def restore_global(states: dict[str, Any]) -> None:
    set_state(torch.default_generator, states["torch"])
    random.setstate(states["python"])
    set_state(numpy.random.mtrand._rand, states["numpy"])


def equal(one: Any, other: Any) -> bool:
    """Whether two states of a generator are the same."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(numpy.array_equal(one, other))


def own_states(loader: Loader) -> dict[str, Any]:
    """The states of the generators that the loader, its samplers and its data carry, by where they are."""
    return {path: state_of(generator) for path, generator in generators_in(roots_of(loader)).items()}


def restore_own(states: dict[str, Any], loader: Loader) -> None:
    found = generators_in(roots_of(loader))
    for path, state in states.items():
        if path not in found:
            raise CheckpointError(
                f"the checkpoint has the state of a generator at {path}, and this run's loader has none there; "
                "make the loader as when it was saved"
            )
        set_state(found[path], state)


def roots_of(loader: Loader) -> dict[str, Any]:
    return {
        "generator": loader.generator,
        "batch_sampler": loader.batch_sampler,
        "sampler": loader.sampler,
        "dataset": loader.dataset,
    }


@dataclass(frozen=True, slots=True)
class Values:
    """What samplers and data keep beside generators: their own `state_dict`, and attributes that have changed."""

    states: dict[str, Any]
    changed: dict[str, Any]

    def restore(self, loader: Loader) -> None:
        stateful, places = _stateful(loader), _places(loader)
        for path, state in self.states.items():
            if path not in stateful:
                raise CheckpointError(f"the checkpoint has a state for {path}, and this run's has no load_state_dict")
            stateful[path].load_state_dict(copy.deepcopy(state))
        for path, value in self.changed.items():
            if path not in places or not _alike(own := getattr(*places[path]), value):
                here = "does not exist" if path not in places else f"is a {type(own).__name__}"
                raise CheckpointError(
                    f"the checkpoint has a {type(value).__name__} for {path}, which in this run {here}; "
                    "make the loader as when it was saved"
                )
            # A data set may load what it finds at a path, and whoever wrote the checkpoint must not choose the place.
            if (_names_a_file(value) or _names_a_file(own)) and value != own:
                raise CheckpointError(
                    f"the checkpoint has another path for {path} than this run; make the loader as when it was saved"
                )
            setattr(*places[path], copy.deepcopy(value))


class Watch:
    """Knows what the samplers and the data of a loader were like when it was prepared."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.digests = {path: _digest(getattr(*place)) for path, place in _places(loader).items()}

    def values(self) -> Values:
        """What differs now; copies, because it goes on changing."""
        changed = {
            path: copy.deepcopy(value)
            for path, place in _places(self.loader).items()
            if _digest(value := getattr(*place)) != self.digests.get(path) and _is_plain(value)
        }
        return Values({path: one.state_dict() for path, one in _stateful(self.loader).items()}, changed)

    def all_values(self) -> Values:
        """What is there now, changed or not."""
        values = {path: getattr(*place) for path, place in _places(self.loader).items()}
        plain = {path: copy.deepcopy(value) for path, value in values.items() if _is_plain(value)}
        return Values({path: one.state_dict() for path, one in _stateful(self.loader).items()}, plain)

    def unkept(self) -> str | None:
        """Names something that decides the order and cannot be kept."""
        if isinstance(self.loader.dataset, IterableDataset) and self.loader.persistent_workers:
            return "its persistent workers draw from generators of their own"
        owners = [*_samplers(self.loader), ("dataset", self.loader.dataset)]
        for path, owner in owners:
            if _has_state(owner):
                continue
            for name, value in getattr(owner, "__dict__", {}).items():
                if isinstance(value, Iterator):
                    return f"{path}.{name} is a {type(value).__name__}, whose state nobody can take"
        return None


def _samplers(loader: Loader) -> Iterator[tuple[str, Any]]:
    roots = {"batch_sampler": loader.batch_sampler, "sampler": loader.sampler}
    for path, thing in reached(roots):
        # The data that a sampler is about is no part of it.
        if hasattr(thing, "__iter__") and hasattr(thing, "__dict__") and not isinstance(thing, Dataset):
            yield path, thing


def _places(loader: Loader) -> dict[str, tuple[Any, str]]:
    """The plain attributes of samplers, and the numbers and texts of the data, as (owner, name)."""
    found: dict[str, tuple[Any, str]] = {}
    for path, owner in _samplers(loader):
        if owner is loader.dataset or _has_state(owner):
            continue
        kinds = SCALARS if type(owner).__module__.startswith("torch.") else (*SCALARS, *CONTAINERS)
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, kinds):
                found.setdefault(f"{path}.{name}", (owner, name))
    if not _has_state(loader.dataset):
        for name, value in getattr(loader.dataset, "__dict__", {}).items():
            if isinstance(value, SCALARS):
                found.setdefault(f"dataset.{name}", (loader.dataset, name))
    return found


def _stateful(loader: Loader) -> dict[str, Any]:
    found = {path: thing for path, thing in _samplers(loader) if _has_state(thing)}
    return {**found, "dataset": loader.dataset} if _has_state(loader.dataset) else found


def _has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def _alike(own: Any, value: Any) -> bool:
    return type(own) is type(value) or own is None or value is None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, set)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    if isinstance(value, numpy.ndarray):
        return value.dtype.kind in "biuf"
    return isinstance(value, (*SCALARS, torch.Tensor))


def _digest(value: Any) -> int | None:
    try:
        return zlib.crc32(pickle.dumps(value))
    except Exception:  # whatever cannot be pickled is not plain
        return None


def _names_a_file(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_names_a_file, (*value.keys(), *value.values())))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_names_a_file, value))
    return isinstance(value, (str, bytes)) and any(mark in str(value) for mark in ("/", "\\", "."))
