"""What the processes of a run say to each other, over nested containers, in as few messages as possible."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from accel_runtime.errors import UsageError
from accel_runtime.tree import Tree, leaves, map_leaves, replace_leaves
from accel_runtime.world import World

Reduction = Literal["sum", "mean", "max", "min", "none"]
_OPERATIONS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
# Torch 2.13 gave it a new name.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of one world; alone, each of them gives back what it was given."""

    world: World
    device: torch.device

    @property
    def alone(self) -> bool:
        return self.world.size == 1

    def barrier(self) -> None:
        if not self.alone:
            dist.barrier(device_ids=[self.device.index] if self.device.index is not None else None)

    def gather(self, tree: Tree) -> Tree:
        """Every tensor with the rows of all processes, in the order of ranks; shapes must be equal everywhere."""
        if self.alone:
            return tree
        tensors = _tensors(tree, "gather")
        self._agree(_signature(tensors), "gather")
        return replace_leaves(tree, self._gather_equal(tensors))

    def gather_rows(self, tree: Tree, rows: int, real: tuple[int, ...] | None = None) -> Tree:
        """As `gather`, but tensors of `rows` rows may be longer on one process than on another.

        `real` says how many rows of each process to keep; a negative number keeps all of them.
        """
        tensors = _tensors(tree, "gather_for_metrics")
        by_sample = [tensor.dim() > 0 and len(tensor) == rows for tensor in tensors]
        trailing = [tensor[:0] if samples else tensor for tensor, samples in zip(tensors, by_sample)]
        counts = self._agree(_signature(trailing), "gather_for_metrics", rows)
        longest = max(counts)
        padded = [_pad(tensor, longest) if samples else tensor for tensor, samples in zip(tensors, by_sample)]
        gathered = self._gather_equal(padded)
        if real is not None or min(counts) < longest:
            kept = _kept_rows(counts, real).to(self.device)
            gathered = [whole[kept] if samples else whole for whole, samples in zip(gathered, by_sample)]
        return replace_leaves(tree, gathered)

    def reduce(self, tree: Tree, reduction: Reduction = "sum", scale: float = 1.0) -> Tree:
        """Every tensor summed, averaged, or its largest or smallest value, over all processes; then scaled."""
        if reduction not in (*_OPERATIONS, "none"):
            raise UsageError(f"reduction={reduction!r} is unknown; use sum, mean, max, min or none")
        tensors = _tensors(tree, "reduce")
        if self.alone or reduction == "none":
            return map_leaves(lambda tensor: tensor * scale if scale != 1 else tensor, tree)
        self._agree(_signature(tensors), "reduce")
        share = scale / self.world.size if reduction == "mean" else scale
        reduced: list[Tensor] = [torch.empty(0)] * len(tensors)
        for places in _places_by_dtype(tensors).values():
            flat = torch.cat([tensors[place].detach().reshape(-1).to(self.device) for place in places])
            dist.all_reduce(flat, _OPERATIONS[reduction])
            pieces = (flat if share == 1 else flat * share).split_with_sizes(
                [tensors[place].numel() for place in places]
            )
            for place, piece in zip(places, pieces):
                reduced[place] = piece.view(tensors[place].shape)
        return replace_leaves(tree, reduced)

    def broadcast(self, tree: Tree, source: int = 0) -> Tree:
        """Every tensor as process `source` has it."""
        if self.alone:
            return tree
        tensors = _tensors(tree, "broadcast")
        self._agree(_signature(tensors), "broadcast")
        sent: list[Tensor] = [torch.empty(0)] * len(tensors)
        for places in _places_by_dtype(tensors).values():
            flat = torch.cat([tensors[place].detach().reshape(-1).to(self.device) for place in places])
            dist.broadcast(flat, source)
            for place, piece in zip(places, flat.split_with_sizes([tensors[place].numel() for place in places])):
                sent[place] = piece.view(tensors[place].shape)
        return replace_leaves(tree, sent)

    def pad(self, tree: Tree, dim: int = 0, value: float = 0, first: bool = False) -> Tree:
        """Every tensor as long in `dim` as the longest among the processes, filled with `value`."""
        if self.alone:
            return tree
        tensors = _tensors(tree, "pad_across_processes")
        sizes = [tensor.shape[dim] if -tensor.dim() <= dim < tensor.dim() else 0 for tensor in tensors]
        longest = torch.tensor(sizes, device=self.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        padded = [
            _pad(tensor, length, dim, value, first) if -tensor.dim() <= dim < tensor.dim() else tensor
            for tensor, length in zip(tensors, longest.tolist())
        ]
        return replace_leaves(tree, padded)

    def gather_objects(self, value: Any) -> list[Any]:
        """The value of every process, in the order of ranks; anything that can be pickled."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values

    def broadcast_objects(self, values: list[Any], source: int = 0) -> list[Any]:
        """Fills the list in place with what process `source` has in it."""
        if not self.alone:
            dist.broadcast_object_list(values, source, device=self.device)
        return values

    def scatter_objects(self, parts: Sequence[Any] | None) -> Any:
        """Process r gets `parts[r]` of process 0, and nothing else travels to it."""
        if self.alone:
            return (parts or [None])[0]
        received: list[Any] = [None]
        dist.scatter_object_list(received, list(parts) if parts is not None else None, src=0)
        return received[0]

    def gather_numbers(self, number: int) -> list[int]:
        """The number of every process, in the order of ranks."""
        if self.alone:
            return [number]
        return [int(other) for other in self._all_gather(torch.tensor([number], device=self.device)).flatten().tolist()]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        if self.alone:
            return flag
        votes = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return bool(votes.item())

    def _gather_equal(self, tensors: list[Tensor]) -> list[Tensor]:
        """One message for all tensors of all dtypes: they travel as bytes."""
        if not tensors:
            return []
        flat = [tensor.detach().to(self.device).reshape(-1).view(torch.uint8) for tensor in tensors]
        mine = flat[0] if len(flat) == 1 else torch.cat(flat)
        pieces = self._all_gather(mine).split_with_sizes([piece.numel() for piece in flat], dim=1)
        return [
            # The copy gives each piece memory of its own, aligned for its dtype.
            piece.contiguous().view(-1).view(tensor.dtype).view(self._stacked(tensor))
            for tensor, piece in zip(tensors, pieces)
        ]

    def _all_gather(self, mine: Tensor) -> Tensor:
        """One row for each process."""
        everyone = mine.new_empty(self.world.size * mine.numel())
        _all_gather(everyone, mine)
        return everyone.view(self.world.size, -1)

    def _stacked(self, tensor: Tensor) -> tuple[int, ...]:
        return (self.world.size * (len(tensor) if tensor.dim() else 1), *tensor.shape[1:])

    def _agree(self, signature: str, caller: str, rows: int = 0) -> list[int]:
        """Stops every process when they are about to exchange unequal things; gives each process's `rows`."""
        header = torch.tensor([zlib.crc32(signature.encode()), rows], device=self.device)
        digests, counts = self._all_gather(header).t().tolist()
        if len(set(digests)) > 1:
            views = "; ".join(f"rank {rank}: {view}" for rank, view in enumerate(self.gather_objects(signature)))
            raise UsageError(
                f"{caller} got tensors that differ between processes ({views}); "
                "make them equal first, for example with pad_across_processes, or use gather_object"
            )
        return [int(count) for count in counts]


def _tensors(tree: Tree, caller: str) -> list[Tensor]:
    found = []
    for path, leaf in leaves(tree):
        if not isinstance(leaf, Tensor):
            raise UsageError(
                f"{caller} got {type(leaf).__name__} at {path or 'the top'} where a tensor was expected; "
                "use gather_object or broadcast_object_list for other objects"
            )
        found.append(leaf)
    return found


def _signature(tensors: list[Tensor]) -> str:
    return ", ".join(f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}" for tensor in tensors)


def _places_by_dtype(tensors: list[Tensor]) -> dict[torch.dtype, list[int]]:
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    return places


def _kept_rows(counts: list[int], real: tuple[int, ...] | None) -> Tensor:
    """Where the rows to keep are when every process's rows were padded to the longest."""
    longest = max(counts)
    kept = counts if real is None else [count if one < 0 else min(one, count) for one, count in zip(real, counts)]
    return torch.cat([torch.arange(count) + rank * longest for rank, count in enumerate(kept)])


def _pad(tensor: Tensor, length: int, dim: int = 0, value: float = 0, first: bool = False) -> Tensor:
    missing = length - tensor.shape[dim]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    filler = tensor.new_full(shape, value)
    return torch.cat([filler, tensor] if first else [tensor, filler], dim=dim)
