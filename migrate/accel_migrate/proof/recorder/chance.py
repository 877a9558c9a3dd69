"""Random numbers: the same beginning for every run, and whether some were drawn between two moments."""

from __future__ import annotations

import random
import sys
from typing import Any


def seed_python(seed: int) -> None:
    random.seed(seed)


def seed_all(torch: Any, seed: int) -> None:
    seed_python(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)


def state(torch: Any) -> int:
    """A number that changes when a random number is drawn."""
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else ("", b"", 0)
    return hash((torch.get_rng_state().numpy().tobytes(), random.getstate(), bytes(of_numpy[1]), of_numpy[2]))
