"""Which samples a batch holds: a fingerprint of each row, whatever the batch is nested in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any


def fingerprints(torch: Any, batch: Any, rows: int) -> list[str]:
    """One for each row; empty when no part of the batch has that many."""
    digests = [hashlib.blake2b(digest_size=6) for _ in range(rows)]
    found = False
    for leaf in leaves(torch, batch):
        if torch.is_tensor(leaf) and leaf.dim() and len(leaf) == rows and not leaf.is_sparse:
            found = True
            for digest, row in zip(digests, leaf.detach().cpu().contiguous().reshape(rows, -1)):
                digest.update(_bytes(torch, row))
        elif isinstance(leaf, list) and len(leaf) == rows:
            found = True
            for digest, item in zip(digests, leaf):
                digest.update(repr(item).encode())
    return [digest.hexdigest() for digest in digests] if found else []


def fingerprint(torch: Any, tensors: list[Any]) -> str:
    """One for all of them."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(_bytes(torch, tensor.detach().cpu().contiguous().reshape(-1)))
    return digest.hexdigest()


def _bytes(torch: Any, row: Any) -> bytes:
    data: bytes = row.view(torch.uint8).numpy().tobytes()
    return data


def leaves(torch: Any, batch: Any) -> Iterator[Any]:
    """Tensors, and lists of what are no tensors, such as texts."""
    if torch.is_tensor(batch):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from leaves(torch, value)
    elif isinstance(batch, list | tuple):
        if batch and not any(torch.is_tensor(item) or isinstance(item, list | tuple | Mapping) for item in batch):
            yield list(batch)
        for item in batch:
            yield from leaves(torch, item)
