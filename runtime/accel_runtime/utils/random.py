"""What scripts for Accelerate import about seeds."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from accel_runtime.errors import ConfigError
from accel_runtime.operations import broadcast_object_list
from accel_runtime.seeding import set_seed
from accel_runtime.unsupported import absent
from accel_runtime.utils.dataclasses import RNGType


def synchronize_rng_state(rng_type: RNGType | str | None = None, generator: torch.Generator | None = None) -> None:
    """Gives every process the state that this generator has on the first."""
    kind = RNGType(rng_type)
    if kind is RNGType.GENERATOR:
        if generator is None:
            raise ConfigError("synchronize_rng_state('generator') needs the generator")
        generator.set_state(_of_first(generator.get_state()))
    elif kind is RNGType.TORCH:
        torch.set_rng_state(_of_first(torch.get_rng_state()))
    else:
        module = torch.get_device_module(str(kind))
        module.set_rng_state(_of_first(module.get_rng_state()))


def synchronize_rng_states(rng_types: Iterable[RNGType | str], generator: torch.Generator | None = None) -> None:
    """Gives every process the states that these generators have on the first."""
    for kind in rng_types:
        synchronize_rng_state(kind, generator)


def _of_first(state: torch.Tensor) -> torch.Tensor:
    (first,) = broadcast_object_list([state])
    return first  # type: ignore[no-any-return]


__all__ = ["set_seed", "synchronize_rng_state", "synchronize_rng_states"]

__getattr__ = absent(__name__)
