"""Loading sharded tensors: torch plans which pieces each process needs, whatever number of processes saved them."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.futures import Future

from accel_runtime.checkpoint.files import inside
from accel_runtime.checkpoint.shard_index import Block, Index, Sharded, block_name, shards_of
from accel_runtime.errors import CheckpointError

Like = Mapping[str, Tensor]  # the tensors of this run that those of a part are for; they are not changed


def read_shards(folder: Path, index: Index, part: str, like: Like) -> dict[str, Tensor]:
    """The tensors of a part, whose index this is: those that are sharded in this run as shards, the others whole; all fresh."""
    named = {name.removeprefix(f"{part}/"): one for name, one in index.items()}
    targets = {name: _target(one, like.get(name)) for name, one in named.items()}
    wanted = {f"{part}/{name}": _blocks(one, targets[name]) for name, one in named.items()}
    with warnings.catch_warnings():
        # Each process reads for itself: there is nothing to be agreed on.
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            load(
                {f"{part}/{name}": tensor for name, tensor in targets.items()},
                storage_reader=Reading(folder, index, wanted),
                planner=DefaultLoadPlanner(flatten_state_dict=False),
                no_dist=True,
            )
        except CheckpointException as error:
            reason = next(iter(error.failures.values()))[0]
            raise CheckpointError(f"the shards of {part} in {folder} cannot be read ({reason})") from error
    return targets


class Reading(StorageReader):
    """`wanted` has of each tensor the blocks that this process needs, and torch hears of no others."""

    def __init__(self, folder: Path, index: Index, wanted: Mapping[str, list[Block]]) -> None:
        self.folder, self.index = folder, index
        self.ranks = {MetadataIndex(name, one.offsets): one.rank for name, blocks in wanted.items() for one in blocks}
        self.metadata = Metadata({name: _metadata(one, wanted[name]) for name, one in index.items()})

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        from safetensors import safe_open

        wanted: defaultdict[int, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            wanted[self.ranks[item.storage_index]].append(item)
        for rank, items in wanted.items():
            with safe_open(inside(self.folder, f"{shards_of(rank)}.safetensors"), framework="pt") as pieces:
                for item in items:
                    target = planner.resolve_tensor(item)
                    target.copy_(_read(pieces, item, self.index[item.storage_index.fqn], target))
                    planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def _read(pieces: Any, item: ReadItem, saved: Sharded, target: Tensor) -> Tensor:
    """Any: safetensors has no types. Only the wanted rows and columns are read."""
    name = block_name(item.storage_index.fqn, tuple(item.storage_index.offset or ()))
    block = pieces.get_slice(name)
    # Looked at before anything is read: the file may hold something else under this name.
    if any(start + length > size for start, length, size in zip(item.storage_offsets, item.lengths, block.get_shape())):
        raise CheckpointError(f"{name[:200]} is smaller than the index says")
    box = tuple(slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths))
    found: Tensor = block[box] if box else pieces.get_tensor(name)
    if found.shape != target.shape or found.dtype != saved.torch_dtype:
        raise CheckpointError(f"{name[:200]} is {tuple(found.shape)} of {found.dtype}, and the index says otherwise")
    return found


def _target(saved: Sharded, like: Tensor | None) -> Tensor:
    if isinstance(like, DTensor) and tuple(like.shape) == saved.size:
        return torch.empty_like(like, dtype=saved.torch_dtype, requires_grad=False)
    return torch.empty(saved.size, dtype=saved.torch_dtype)


def _blocks(saved: Sharded, target: Tensor) -> list[Block]:
    if not isinstance(target, DTensor):
        return list(saved.blocks())
    sizes, offsets = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
    if 0 in sizes:
        return []
    return list(saved.blocks(tuple((offset, offset + size) for offset, size in zip(offsets, sizes))))


def _metadata(saved: Sharded, blocks: list[Block]) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(block.offsets), torch.Size(block.sizes)) for block in blocks]
    return TensorStorageMetadata(TensorProperties(saved.torch_dtype), torch.Size(saved.size), chunks)
