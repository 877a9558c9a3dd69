"""What the processes of a run say to each other, over nested containers, in as few messages as possible."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from accel_runtime.errors import UsageError
from accel_runtime.packing import packed, padded, places_by_dtype, signature, unpacked
from accel_runtime.tree import Tree, leaves, map_leaves, replace_leaves
from accel_runtime.world import World

Reduction = Literal["sum", "mean", "max", "min", "none"]
OPERATIONS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}

# Bytes of the first message of a gather: its header, and the tensors themselves when they are small.
FIRST_MESSAGE = 4096
HEADER = 3 * 8

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
        tensors = _tensors(tree, "gather")
        if self.alone:
            return tree
        everyone, _ = self._exchange(packed(tensors, self.device), signature(tensors), "gather")
        return replace_leaves(tree, unpacked(everyone, tensors))

    def gather_rows(self, tree: Tree, rows: int, real: tuple[int, ...] | None = None) -> Tree:
        """As `gather`, but tensors of `rows` rows may be longer on one process than on another.

        `real` says how many rows of each process to keep; a negative number keeps all of them.
        """
        if self.alone:
            return tree
        tensors = _tensors(tree, "gather_for_metrics")
        by_sample = [tensor.dim() > 0 and len(tensor) == rows for tensor in tensors]
        alike = signature([tensor[:0] if samples else tensor for tensor, samples in zip(tensors, by_sample)])
        everyone, counts = self._exchange(packed(tensors, self.device), alike, "gather_for_metrics", rows)
        if min(counts) < max(counts):
            tensors = [padded(one, max(counts)) if samples else one for one, samples in zip(tensors, by_sample)]
            everyone = self._all_gather(packed(tensors, self.device))
        gathered = unpacked(everyone, tensors)
        if real is not None or min(counts) < max(counts):
            kept = _kept_rows(counts, real).to(self.device)
            gathered = [whole[kept] if samples else whole for whole, samples in zip(gathered, by_sample)]
        return replace_leaves(tree, gathered)

    def reduce(self, tree: Tree, reduction: Reduction = "sum", scale: float = 1.0) -> Tree:
        """Every tensor summed, averaged, or its largest or smallest value, over all processes; then scaled."""
        if reduction not in (*OPERATIONS, "none"):
            raise UsageError(f"reduction={reduction!r} is unknown; use sum, mean, max, min or none")
        share = scale / self.world.size if reduction == "mean" else scale
        if not self.alone and reduction != "none":
            tree = self._by_dtype(tree, "reduce", lambda flat: dist.all_reduce(flat, OPERATIONS[reduction]))
        return tree if share == 1 else map_leaves(lambda tensor: tensor * share, tree)

    def broadcast(self, tree: Tree, source: int = 0) -> Tree:
        """Every tensor as process `source` has it."""
        if self.alone:
            return tree
        return self._by_dtype(tree, "broadcast", lambda flat: dist.broadcast(flat, source))

    def pad(self, tree: Tree, dim: int = 0, value: float = 0, first: bool = False) -> Tree:
        """Every tensor as long in `dim` as the longest among the processes, filled with `value`."""
        tensors = _tensors(tree, "pad_across_processes")
        if self.alone:
            return tree
        reaches = [-tensor.dim() <= dim < tensor.dim() for tensor in tensors]
        sizes = [tensor.shape[dim] if has else 0 for tensor, has in zip(tensors, reaches)]
        longest = torch.tensor(sizes, device=self.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        grown = [
            padded(tensor, length, dim, value, first) if has else tensor
            for tensor, length, has in zip(tensors, longest.tolist(), reaches)
        ]
        return replace_leaves(tree, grown)

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
        everyone = self._all_gather(torch.tensor([number], device=self.device))
        return [int(one) for one in everyone.flatten().tolist()]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        return any(self.gather_numbers(int(flag)))

    def _exchange(self, mine: Tensor, alike: str, caller: str, rows: int = 0) -> tuple[Tensor, list[int]]:
        """The bytes of all processes, one row each, and how many `rows` each process said.

        Small tensors travel with the header that says whether they fit together, so they cost one message. Where
        processes differ in `rows`, what is returned for bytes is of no use.
        """
        header = torch.tensor([zlib.crc32(alike.encode()), rows, mine.numel()], device=self.device).view(torch.uint8)
        first = mine.new_zeros(FIRST_MESSAGE)
        first[:HEADER] = header
        fits = mine.numel() <= FIRST_MESSAGE - HEADER
        if fits:
            first[HEADER : HEADER + mine.numel()] = mine
        everyone = self._all_gather(first)
        digests, counts, _ = everyone[:, :HEADER].contiguous().view(torch.int64).t().tolist()
        self._check_alike(digests, alike, caller)
        if fits or min(counts) < max(counts):
            return everyone[:, HEADER : HEADER + mine.numel()], counts
        return self._all_gather(mine), counts

    def _by_dtype(self, tree: Tree, caller: str, exchange: Callable[[Tensor], Any]) -> Tree:
        """The tree with every tensor taken from an exchange that works in place, one for each dtype."""
        tensors = _tensors(tree, caller)
        alike = signature(tensors)
        self._check_alike(self.gather_numbers(zlib.crc32(alike.encode())), alike, caller)
        exchanged = list(tensors)
        for places in places_by_dtype(tensors).values():
            flat = torch.cat([tensors[place].detach().to(self.device).reshape(-1) for place in places])
            exchange(flat)
            for place, piece in zip(places, flat.split_with_sizes([tensors[place].numel() for place in places])):
                exchanged[place] = piece.view(tensors[place].shape)
        return replace_leaves(tree, exchanged)

    def _check_alike(self, digests: list[int], alike: str, caller: str) -> None:
        if len(set(digests)) == 1:
            return
        views = "; ".join(f"rank {rank}: {view}" for rank, view in enumerate(self.gather_objects(alike)))
        raise UsageError(
            f"{caller} got tensors that differ between processes ({views}); "
            "make them equal first, for example with pad_across_processes, or use gather_object"
        )

    def _all_gather(self, mine: Tensor) -> Tensor:
        """One row for each process."""
        everyone = mine.new_empty(self.world.size * mine.numel())
        _all_gather(everyone, mine)
        return everyone.view(self.world.size, -1)


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


def _kept_rows(counts: list[int], real: tuple[int, ...] | None) -> Tensor:
    """Where the rows to keep are when every process's rows were padded to the longest."""
    longest = max(counts)
    kept = counts if real is None else [count if one < 0 else min(one, count) for one, count in zip(real, counts)]
    return torch.cat([torch.arange(count) + rank * longest for rank, count in enumerate(kept)])
