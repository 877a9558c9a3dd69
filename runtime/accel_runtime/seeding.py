"""Seeds for everything that draws."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from accel_runtime.options import seed_from
from accel_runtime.world import world_from

# Torch begins with 64 random bits; seeds that people write are below this.
_OF_SCRIPT = 2**32


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seeds Python, NumPy and torch on all devices.

    `device_specific` gives each process its own noise: dropout and augmentation differ, while samplers still draw
    alike on all of them. `deterministic` also makes torch refuse operations that have no repeatable form.

    >>> set_seed(42)
    """
    if device_specific:
        seed += dist.get_rank() if dist.is_initialized() else world_from(os.environ).rank
    random.seed(seed)
    _seed_numpy(seed)
    torch.manual_seed(seed)
    _seed_xla(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def seed_alike(environ: Mapping[str, str]) -> None:
    """Has all processes of a run draw alike from here on; what the script has seeded already stays as it is."""
    seed = seed_from(environ)
    if seed is None:
        return
    if torch.initial_seed() < _OF_SCRIPT:
        seed = (
            torch.initial_seed()
        )  # Python's generator cannot tell whether it was seeded, and who seeds one seeds both
    else:
        torch.manual_seed(seed)
        _seed_xla(seed)
    random.seed(seed)
    if not _numpy_is_seeded():
        _seed_numpy(seed)


def _seed_xla(seed: int) -> None:
    """Torch does not know of XLA's generator; one that comes into being later takes torch's seed."""
    if "torch_xla" in sys.modules:
        sys.modules["torch_xla"].manual_seed(seed)


def _seed_numpy(seed: int) -> None:
    try:
        import numpy
    except ImportError:
        return
    generator: Any = numpy.random
    generator.seed(seed % 2**32)


def _numpy_is_seeded() -> bool:
    """A generator that was seeded by hand no longer has the entropy of the machine that it began with."""
    try:
        import numpy
    except ImportError:
        return True
    generator: Any = numpy.random
    return generator.get_bit_generator().seed_seq is None
