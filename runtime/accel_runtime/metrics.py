"""Results of all processes with every sample exactly once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Iteration
from accel_runtime.errors import UsageError
from accel_runtime.tree import Tree, leaves


def gather_samples(tree: Tree, collectives: Collectives, iteration: Iteration | None, objects: bool) -> Tree:
    """Gathers what was computed from the current batch; rows of samples that only fill the last round are left out."""
    if collectives.alone:
        return tree
    if objects or not all(isinstance(leaf, Tensor) for _, leaf in leaves(tree)):
        return _gather_objects(tree, collectives, iteration)
    if iteration is None or iteration.share is None:
        return collectives.gather(tree)
    share = iteration.share
    _check_present(iteration)
    rows = share.rows if share.rows is not None else _common_rows(tree)
    if iteration.pads:
        _check_rows(tree, rows)
    return collectives.gather_rows(tree, rows, share.real)


def _check_present(iteration: Iteration) -> None:
    """Without filled-up rounds some processes have no batch at the end, and would never come to gather."""
    real = iteration.share.real if iteration.share is not None else None
    if real is not None and not iteration.pads and 0 in real:
        raise UsageError(
            f"gather_for_metrics cannot gather batch {iteration.index}: process {real.index(0)} has no such batch; "
            "use even_batches=True, which leaves out repeated samples by itself"
        )


def _check_rows(tree: Tree, rows: int) -> None:
    for path, tensor in leaves(tree):
        if tensor.dim() and len(tensor) != rows:
            raise UsageError(
                f"gather_for_metrics got {len(tensor)} rows{f' at {path}' if path else ''} for a batch of {rows} "
                "samples, so it cannot leave out the samples that are repeated to fill the last batches; "
                "pass one row per sample, or use gather() to keep every row"
            )


def _common_rows(tree: Tree) -> int:
    return next((len(tensor) for _, tensor in leaves(tree) if tensor.dim()), 0)


def _gather_objects(tree: Any, collectives: Collectives, iteration: Iteration | None) -> list[Any]:
    parts = collectives.gather_objects(tree if isinstance(tree, (list, tuple)) else [tree])
    share = iteration.share if iteration is not None else None
    if share is not None and share.real is not None:
        parts = [part if wanted < 0 else part[:wanted] for part, wanted in zip(parts, share.real)]
    return [item for part in parts for item in part]
