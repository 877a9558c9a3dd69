"""Loaders that would give processes different numbers of batches, noticed before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accel_runtime.collectives import Collectives
from accel_runtime.data.loader import PreparedLoader
from accel_runtime.errors import UsageError

UNKNOWN = -1  # of a stream


def check_alike(loaders: Sequence[PreparedLoader], collectives: Collectives, of: str = "prepare()") -> None:
    """Every process must hold the same data: each takes its part by position. One message for all loaders."""
    if collectives.alone or not loaders:
        return
    own = torch.tensor([_samples(loader) for loader in loaders], device=collectives.device)
    lengths = collectives.gather(own).view(collectives.world.size, -1).tolist()
    for place, samples in enumerate(zip(*lengths)):
        if len(set(samples)) > 1:
            other = next(rank for rank, length in enumerate(samples) if length != samples[0])
            raise UsageError(
                f"loader {place + 1} of {of} has {samples[0]} samples on rank 0 and {samples[other]} on rank "
                f"{other}, so some ranks would wait for others at the end; build it from the same data on every rank: "
                f"{of} shares it out"
            )


def _samples(loader: PreparedLoader) -> int:
    try:
        return loader.total_dataset_length
    except TypeError:
        return UNKNOWN
