"""What the processes of a run say to each other, over nested containers, in as few messages as possible."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from accel_runtime.errors import UsageError
from accel_runtime.first_message import Heard, digest_of, first_message, heard, is_agreed, message_size
from accel_runtime.packing import has_rows, packed, padded, places_by_dtype, signature, unpacked
from accel_runtime.tree import Tree, leaves, map_leaves, replace_leaves
from accel_runtime.watchdog import place_of
from accel_runtime.world import World

Reduction = Literal["sum", "mean", "max", "min", "none"]
OPERATIONS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
# What processes that mean different collectives then do together.
REFUSAL = "a refusal"

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

    def announce(self, name: str) -> None:
        """Returns when every process means this: for work with a channel of its own, on which others are not heard."""
        if not self.alone:
            self._meet(name)

    def barrier(self) -> None:
        if not self.alone:
            self._meet("wait_for_everyone")

    def gather(self, tree: Tree) -> Tree:
        """Every tensor with the rows of all processes, in the order of ranks; shapes must be equal everywhere."""
        paths, tensors = _tensors(tree, "gather")
        if self.alone:
            return tree
        mine = packed(tensors, self.device)
        everyone = self._exchange("gather", signature(paths, tensors), mine)
        return replace_leaves(tree, unpacked(everyone, tensors))

    def gather_rows(
        self, tree: Tree, rows: int | None = None, real: tuple[int, ...] | None = None, problem: str | None = None
    ) -> Tree:
        """As `gather`, but tensors of `rows` rows may be longer on one process than on another; None stays None.

        `real` says how many rows of each process to keep; a negative number keeps all of them. A `problem` of one
        process is an error on all.
        """
        if self.alone:
            return tree
        paths, tensors = _tensors(tree, "gather_for_metrics", none=True)
        by_sample = [has_rows(tensor, rows) for tensor in tensors]
        mine = packed(tensors, self.device)
        # From the shape and not the bytes: a process may have no row at all.
        row = sum(one.element_size() * prod(one.shape[1:]) for one, samples in zip(tensors, by_sample) if samples)
        rest = mine.numel() - row * (rows or 0)
        alike = problem or signature(paths, tensors, rows)
        said = self._meet("gather_for_metrics", alike, rows or 0, mine, lambda count: rest + row * count)
        if problem:
            raise UsageError(problem)
        counts = said.numbers
        if min(counts) < max(counts):
            tensors = [padded(one, max(counts)) if samples else one for one, samples in zip(tensors, by_sample)]
            mine = packed(tensors, self.device)
            everyone = self._all_gather(mine)
        else:
            everyone = self._all_gather(mine) if said.small is None else said.small
        gathered = unpacked(everyone, tensors)
        if real is not None or min(counts) < max(counts):
            kept = _kept_rows(counts, real).to(self.device)
            gathered = [whole[kept] if samples else whole for whole, samples in zip(gathered, by_sample)]
        return replace_leaves(tree, gathered, none=True)

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
        paths, tensors = _tensors(tree, "pad_across_processes")
        if self.alone:
            return tree
        reaches = [-tensor.dim() <= dim < tensor.dim() for tensor in tensors]
        sizes = [tensor.shape[dim] if has else 0 for tensor, has in zip(tensors, reaches)]
        longest = torch.tensor(sizes, device=self.device)
        ranks = (f"{path} {tensor.dim()} dimensions".lstrip() for path, tensor in zip(paths, tensors))
        self._meet("pad_across_processes", ", ".join(ranks))
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        grown = [
            padded(tensor, length, dim, value, first) if has else tensor
            for tensor, length, has in zip(tensors, longest.tolist(), reaches)
        ]
        return replace_leaves(tree, grown)

    def gather_objects(self, value: Any) -> list[Any]:
        """The value of every process, in the order of ranks; anything that can be pickled."""
        return [value] if self.alone else self._objects("gather_object", value)

    def broadcast_objects(self, values: list[Any], source: int = 0) -> list[Any]:
        """Fills the list in place with what process `source` has in it."""
        if not self.alone:
            self._meet("broadcast_object_list", f"{len(values)} objects from rank {source}")
            dist.broadcast_object_list(values, source, device=self.device)
        return values

    def scatter_objects(self, parts: Sequence[Any] | None) -> Any:
        """Process r gets `parts[r]` of process 0, and nothing else travels to it."""
        if self.alone:
            return (parts or [None])[0]
        received: list[Any] = [None]
        self._meet("the next batch of a dispatched loader")
        dist.scatter_object_list(received, list(parts) if parts is not None else None, src=0)
        return received[0]

    def gather_numbers(self, number: int) -> list[int]:
        """The number of every process, in the order of ranks."""
        return [number] if self.alone else self._meet("an agreement of all processes", number=number).numbers

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        return any(self.gather_numbers(int(flag)))

    def _exchange(self, caller: str, alike: str, mine: Tensor) -> Tensor:
        """The bytes of all processes, one row each, in one message where they are few."""
        said = self._meet(caller, alike, 0, mine, lambda _: mine.numel())
        return self._all_gather(mine) if said.small is None else said.small

    def _objects(self, caller: str, value: Any) -> list[Any]:
        mine = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(self.device)
        said = self._meet(caller, "", mine.numel(), mine, lambda length: length)
        small = said.small if max(said.numbers) == min(said.numbers) else None
        everyone = self._all_gather(padded(mine, max(said.numbers))) if small is None else small
        return [pickle.loads(row[:length].numpy().tobytes()) for row, length in zip(everyone.cpu(), said.numbers)]

    def _by_dtype(self, tree: Tree, caller: str, exchange: Callable[[Tensor], Any]) -> Tree:
        """The tree with every tensor taken from an exchange that works in place, one for each dtype."""
        paths, tensors = _tensors(tree, caller)
        self._meet(caller, signature(paths, tensors))
        exchanged = list(tensors)
        for places in places_by_dtype(tensors).values():
            flat = torch.cat([tensors[place].detach().to(self.device).reshape(-1) for place in places])
            exchange(flat)
            for place, piece in zip(places, flat.split_with_sizes([tensors[place].numel() for place in places])):
                exchanged[place] = piece.view(tensors[place].shape)
        return replace_leaves(tree, exchanged)

    def _meet(
        self,
        caller: str,
        alike: str = "",
        number: int = 0,
        mine: Tensor | None = None,
        length_for: Callable[[int], int] = lambda _: 0,
    ) -> Heard:
        """What all processes say on entering a collective: refused on all unless they mean the same.

        `length_for` gives the bytes that a process has to send, from the number that it says.
        """
        mine = torch.empty(0, dtype=torch.uint8, device=self.device) if mine is None else mine
        meant = f"{caller} {alike}"
        digest = digest_of(meant, mine.numel())
        said = heard(self._all_gather(first_message(digest, number, mine, message_size(self.world.size))), mine)
        if not is_agreed(said, meant, length_for):
            if caller == REFUSAL:
                raise UsageError("the processes are not in one collective; start with --debug, which names their lines")
            self._refuse(caller, alike)
        return said

    def _refuse(self, caller: str, alike: str) -> NoReturn:
        """Says on every process what each of them meant."""
        place = place_of(sys._getframe())
        views = self._objects(REFUSAL, (caller, alike, place.line if place else "an unknown place"))
        if len({caller for caller, _, _ in views}) > 1:
            calls = ", ".join(f"rank {rank} is in {caller} at {line}" for rank, (caller, _, line) in enumerate(views))
            raise UsageError(
                f"{calls}; every process must call the same collectives in the same order, so none may stand under a "
                "condition on the rank"
            )
        shapes = "; ".join(f"rank {rank}: {alike}" for rank, (_, alike, _) in enumerate(views))
        raise UsageError(
            f"{caller} got tensors that differ between processes ({shapes}); "
            "make them equal first, for example with pad_across_processes, or use gather_object"
        )

    def _all_gather(self, mine: Tensor) -> Tensor:
        """One row for each process."""
        everyone = mine.new_empty(self.world.size * mine.numel())
        _all_gather(everyone, mine)
        return everyone.view(self.world.size, -1)


def _tensors(tree: Tree, caller: str, none: bool = False) -> tuple[list[str], list[Tensor]]:
    """Where the tensors of a tree are, and these; with `none`, None may stand where a tensor is missing."""
    found = [(path, leaf) for path, leaf in leaves(tree) if not (none and leaf is None)]
    for path, leaf in found:
        if not isinstance(leaf, Tensor):
            raise UsageError(
                f"{caller} got {type(leaf).__name__} at {path or 'the top'} where a tensor was expected; "
                "use gather_object or broadcast_object_list for other objects"
            )
    return [path for path, _ in found], [leaf for _, leaf in found]


def _kept_rows(counts: list[int], real: tuple[int, ...] | None) -> Tensor:
    """Where the rows to keep are when every process's rows were padded to the longest."""
    longest = max(counts)
    kept = counts if real is None else [count if one < 0 else min(one, count) for one, count in zip(real, counts)]
    return torch.cat([torch.arange(count) + rank * longest for rank, count in enumerate(kept)])
