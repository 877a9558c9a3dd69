"""Results of all processes with every sample exactly once."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from accel_runtime.collectives import Collectives
from accel_runtime.data.iteration import Iteration, Iterations, Share
from accel_runtime.errors import UsageError
from accel_runtime.packing import has_rows
from accel_runtime.tree import Tree, leaves, map_leaves


def gather_samples(tree: Tree, collectives: Collectives, iterations: Iterations, objects: bool) -> Tree:
    """Gathers what was computed from the current batch; rows of samples that only fill the last round are left out."""
    if collectives.alone:
        return _cut_alone(tree, iterations)
    if objects or not any(isinstance(leaf, Tensor) for _, leaf in leaves(tree)):
        return _gather_objects(tree, collectives, iterations)
    lengths = {path: len(leaf) for path, leaf in leaves(tree) if isinstance(leaf, Tensor) and leaf.dim()}
    iteration = _iteration_of(lengths, iterations)
    if iteration is None or iteration.share is None:
        return collectives.gather_rows(tree)
    share = _present(iteration, iteration.share)
    rows = share.rows if share.rows is not None else next(iter(lengths.values()), 0)
    return collectives.gather_rows(tree, rows, share.real, _problem(lengths, rows, iteration))


def sum_of_batches(figure: Any, collectives: Collectives, iterations: Iterations) -> Any:
    """The figures that the processes have of their batches, added up in the order of the batches; repeated batches count nothing.

    A batch that was trained on may be filled up or cut, and its figure is added up as it is.
    """
    if collectives.alone:
        return figure
    iteration = iterations.current
    intact = iteration is not None and iteration.share is not None and iteration.loader.settings.intact
    if iteration is None or not (intact or iteration.worked or iterations.work > iteration.work):
        raise UsageError(
            "sum_for_metrics adds up figures of whole batches; iterate accelerator.whole_batches(loader), because the "
            "batches of a prepared loader are filled up or cut"
        )
    devices = {leaf.device for _, leaf in leaves(figure) if isinstance(leaf, Tensor)} - {torch.device("cpu")}
    if len(devices) > 1:
        raise UsageError(
            f"sum_for_metrics got tensors on {' and '.join(sorted(map(str, devices)))}; move them together"
        )
    real = iteration.share.real if intact and iteration.share is not None else None
    heard = collectives.gather_objects(map_leaves(_sent, figure))
    figures = [one for one, rows in zip(heard, real or (1,) * len(heard)) if rows]
    device = devices.pop() if devices else torch.device("cpu")
    return reduce(add, [map_leaves(lambda leaf: _received(leaf, device), one) for one in figures])


class _Moved:
    """A tensor on its way, that was not on the CPU."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _sent(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach() if leaf.device.type == "cpu" else _Moved(leaf.detach().cpu())


def _received(leaf: Any, device: torch.device) -> Any:
    return leaf.tensor.to(device) if isinstance(leaf, _Moved) else leaf


def _cut_alone(tree: Tree, iterations: Iterations) -> Tree:
    """As on many processes, where the last batch is filled up: what was repeated for a whole batch has its rows only."""
    iteration = iterations.current
    if iteration is None or not iteration.is_last or iteration.short is None:
        return tree
    whole, rows = iteration.short
    if any(one.beside for one in iterations.stack):
        return tree  # it may belong to the batch of another loader
    if isinstance(tree, (list, tuple)) and not any(isinstance(leaf, Tensor) for _, leaf in leaves(tree)):
        return tree[:rows] if len(tree) == whole else tree
    if not any(_is_whole(leaf, whole) for _, leaf in leaves(tree)):
        return tree
    return map_leaves(lambda leaf: leaf[:rows] if _is_whole(leaf, whole) else leaf, tree)


def _is_whole(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, Tensor) and has_rows(leaf, rows)


def _gather_objects(tree: Any, collectives: Collectives, iterations: Iterations) -> list[Any]:
    """One item for each sample; anything else comes back as it is, one for each process, where nothing is cut."""
    by_item = isinstance(tree, (list, tuple)) or (isinstance(tree, Tensor) and tree.dim() > 0)
    items = list(tree) if by_item else [tree]
    lengths = {"": len(items)} if by_item else {}
    iteration = _iteration_of(lengths, iterations)
    if iteration is None or iteration.share is None:
        return _joined(collectives.gather_objects(items))
    share = _present(iteration, iteration.share)
    problem = _problem(lengths, len(items) if share.rows is None else share.rows, iteration)
    if iteration.pads and not by_item:
        problem = (
            f"gather_for_metrics got a {type(tree).__name__}, which has no row for each sample, so it cannot leave out "
            "the samples that are repeated to fill the last batches; pass a list with one item for each sample, or use "
            "gather_object([value])"
        )
    heard = collectives.gather_objects((items, problem))
    if problems := [said for _, said in heard if said]:
        raise UsageError(problems[0])
    wanted = share.real or [-1] * len(heard)
    return _joined([part if count < 0 else part[:count] for (part, _), count in zip(heard, wanted)])


def _joined(parts: list[list[Any]]) -> list[Any]:
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


def _present(iteration: Iteration, share: Share) -> Share:
    """The share of a round in which all processes take part; the others are not here to be asked."""
    if share.real is not None and not iteration.pads and 0 in share.real:
        raise UsageError(
            f"gather_for_metrics cannot gather batch {iteration.index}: process {share.real.index(0)} has none; "
            "use even_batches=True, which leaves out repeated samples by itself"
        )
    return share


def _problem(lengths: dict[str, int], rows: int, iteration: Iteration) -> str | None:
    """What is wrong when not every row belongs to a sample of this process's batch: it could not be cut right."""
    odd = next(((path, length) for path, length in lengths.items() if iteration.pads and length != rows), None)
    if odd is None:
        return None
    path, length = odd
    return (
        f"gather_for_metrics got {length} rows{f' at {path}' if path else ''} for a batch of {rows} "
        "samples, so it cannot leave out the samples that are repeated to fill the last batches; "
        "pass one row per sample, or use gather() to keep every row"
    )
