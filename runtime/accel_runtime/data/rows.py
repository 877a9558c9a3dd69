"""Batches taken apart and put together row by row: tensors, and lists that hold one item for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from accel_runtime.errors import UsageError
from accel_runtime.tree import Tree, batch_rows


def row_count(batch: Tree) -> int:
    """The rows of the first tensor, or of the first list when there is no tensor."""
    rows = batch_rows(batch)
    if rows is None and isinstance(batch, (list, tuple)):
        rows = len(batch)
    if rows is None:
        raise UsageError(
            f"dispatch_batches cannot tell how many samples a batch of type {type(batch).__name__} holds; "
            "let the batch contain a tensor with one row per sample"
        )
    return rows


def sliced_rows(batch: Tree, start: int, stop: int) -> Tree:
    """Rows `start` to `stop` of everything that has rows."""
    rows = row_count(batch)

    def part(leaf: Any) -> Any:
        return leaf[start:stop] if _has_rows(leaf, rows) else leaf

    return _map_rows(part, batch, rows)


def concatenated_rows(batches: list[Tree]) -> Tree:
    """The rows of all batches in one; what has no rows is taken from the first."""
    if len(batches) == 1:
        return batches[0]
    counts = [row_count(batch) for batch in batches]
    flat: list[list[Any]] = []
    for batch, rows in zip(batches, counts):
        found: list[Any] = []
        _map_rows(lambda leaf, found=found: found.append(leaf), batch, rows)  # type: ignore[misc]
        flat.append(found)
    joined = iter([_joined(list(column), counts) for column in zip(*flat)])
    return _map_rows(lambda _: next(joined), batches[0], counts[0])


def _joined(column: list[Any], counts: list[int]) -> Any:
    first = column[0]
    if isinstance(first, Tensor) and _has_rows(first, counts[0]):
        return torch.cat(column)
    if _has_rows(first, counts[0]):
        return type(first)(item for leaf in column for item in leaf)
    return first


def _has_rows(leaf: Any, rows: int) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.dim() > 0 and len(leaf) == rows
    return isinstance(leaf, (list, tuple)) and len(leaf) == rows


def _map_rows(function: Callable[[Any], Any], batch: Tree, rows: int) -> Tree:
    """Like `map_leaves`, with a list of plain values, one for each row, as one leaf."""
    if isinstance(batch, (list, tuple)) and not _is_row_list(batch, rows):
        items = [_map_rows(function, item, rows) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    if isinstance(batch, Mapping):
        return type(batch)({key: _map_rows(function, item, rows) for key, item in batch.items()})  # type: ignore[call-arg]
    return function(batch)


def _is_row_list(batch: Any, rows: int) -> bool:
    return len(batch) == rows and not any(isinstance(item, (Tensor, list, tuple, Mapping)) for item in batch)
