"""One process's part of a collection of inputs: consecutive, and the first processes get what is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from accel_runtime.errors import UsageError


def part_of(inputs: Any, rank: int, size: int, padded: bool = False) -> Any:
    """Parts differ in length by at most one; with `padded` the shorter ones repeat the last input."""
    if size == 1:
        return inputs
    if isinstance(inputs, Mapping):
        _check_lengths(inputs)
        return {key: part_of(value, rank, size, padded) for key, value in inputs.items()}
    share, over = divmod(len(inputs), size)
    start = rank * share + min(rank, over)
    stop = start + share + (1 if rank < over else 0)
    indices = list(range(start, stop))
    if padded and over and rank >= over and len(inputs):
        indices.append(len(inputs) - 1)
    return _taken(inputs, indices)


def _taken(inputs: Any, indices: list[int]) -> Any:
    if isinstance(inputs, Tensor):
        return inputs[torch.tensor(indices, dtype=torch.long, device=inputs.device)]
    if isinstance(inputs, (list, tuple)):
        return type(inputs)([inputs[index] for index in indices])
    if hasattr(inputs, "select"):  # a Hugging Face dataset
        return inputs.select(indices)
    if isinstance(inputs, Dataset):
        return Subset(inputs, indices)
    raise UsageError(
        f"split_between_processes cannot take a {type(inputs).__name__} apart; "
        "pass a list, a tuple, a tensor, a dictionary of these, or a dataset"
    )


def _check_lengths(inputs: Mapping[Any, Any]) -> None:
    lengths = {key: len(value) for key, value in inputs.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"split_between_processes needs values of one length, and got {lengths}")
