"""Results of all processes with every sample exactly once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Iteration, Iterations, Share
from accel_runtime.errors import UsageError
from accel_runtime.tree import Tree, leaves


def gather_samples(tree: Tree, collectives: Collectives, iterations: Iterations, objects: bool) -> Tree:
    """Gathers what was computed from the current batch; rows of samples that only fill the last round are left out."""
    if collectives.alone:
        return tree
    if objects or not all(isinstance(leaf, Tensor) for _, leaf in leaves(tree)):
        return _gather_objects(tree, collectives, iterations)
    lengths = {path: len(leaf) for path, leaf in leaves(tree) if leaf.dim()}
    iteration = _iteration_of(lengths, iterations)
    if iteration is None or iteration.share is None:
        return collectives.gather(tree)
    rows = _checked_rows(lengths, iteration, iteration.share)
    return collectives.gather_rows(tree, rows, iteration.share.real)


def _gather_objects(tree: Any, collectives: Collectives, iterations: Iterations) -> list[Any]:
    has_rows = isinstance(tree, (list, tuple, Tensor))
    lengths = {"": len(tree)} if has_rows else {}
    iteration = _iteration_of(lengths, iterations)
    parts = collectives.gather_objects(tree if has_rows else [tree])
    if has_rows and iteration is not None and iteration.share is not None:
        _checked_rows(lengths, iteration, iteration.share)
        if iteration.share.real is not None:
            parts = [part if wanted < 0 else part[:wanted] for part, wanted in zip(parts, iteration.share.real)]
    return [item for part in parts for item in part]


def _iteration_of(lengths: dict[str, int], iterations: Iterations) -> Iteration | None:
    """The loop that the rows belong to: the innermost, unless several loaders are iterated side by side."""
    innermost = iterations.current
    beside = [one for one in iterations.stack if one.beside or one is innermost]
    fitting = [one for one in beside if _fits(one, lengths)]
    if len({one.share for one in fitting}) > 1:
        raise UsageError(
            "gather_for_metrics cannot tell which of the loaders that are iterated together these rows belong to, and "
            "their last rounds differ; use gather(), or iterate the loaders one after another"
        )
    others = [one for one in reversed(iterations.stack) if _fits(one, lengths)]
    return next(iter((*fitting, *others)), innermost)


def _fits(iteration: Iteration, lengths: dict[str, int]) -> bool:
    return iteration.share is not None and iteration.share.rows in lengths.values()


def _checked_rows(lengths: dict[str, int], iteration: Iteration, share: Share) -> int:
    """The samples of this process's batch, one row for each; anything else cannot be cut right, so it is refused."""
    if share.real is not None and not iteration.pads and 0 in share.real:
        raise UsageError(
            f"gather_for_metrics cannot gather batch {iteration.index}: process {share.real.index(0)} has none; "
            "use even_batches=True, which leaves out repeated samples by itself"
        )
    rows = share.rows if share.rows is not None else next(iter(lengths.values()), 0)
    for path, length in lengths.items():
        if iteration.pads and length != rows:
            raise UsageError(
                f"gather_for_metrics got {length} rows{f' at {path}' if path else ''} for a batch of {rows} "
                "samples, so it cannot leave out the samples that are repeated to fill the last batches; "
                "pass one row per sample, or use gather() to keep every row"
            )
    return rows
