"""On which GPU the memory of a tensor stands; memory without a mark is the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

CPU = torch.device("cpu")
# Made without a word of the device, inside torch: it is where the first tensor is that it meets.
ANYWHERE = torch.device("meta")


class Marks:
    """The mark of each storage that is alive; a weak reference keeps its address from being used for another."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[StorageWeakRef, torch.device]] = {}
        self._limit = 10_000

    def of(self, tensor: torch.Tensor) -> torch.device:
        return self.of_storage(tensor.untyped_storage())

    def of_storage(self, storage: torch.UntypedStorage) -> torch.device:
        found = self._held.get(storage._cdata)
        return found[1] if found is not None else CPU

    def set(self, tensor: torch.Tensor, device: torch.device) -> None:
        self.set_storage(tensor.untyped_storage(), device)

    def set_storage(self, storage: torch.UntypedStorage, device: torch.device) -> None:
        self._held[storage._cdata] = (StorageWeakRef(storage), device)
        if len(self._held) > self._limit:
            self._held = {key: held for key, held in self._held.items() if not held[0].expired()}
            self._limit = 2 * len(self._held) + 10_000


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor with memory in nested arguments or results."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, torch.nn.utils.rnn.PackedSequence):
        yield from tensors_in(tuple(value))
