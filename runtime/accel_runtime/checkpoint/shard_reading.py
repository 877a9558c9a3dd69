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
from torch.futures import Future

from accel_runtime.checkpoint.shard_index import Index, Sharded, piece_name
from accel_runtime.errors import CheckpointError

Likeness = Mapping[str, Tensor]  # the tensors of this run that those of a part are for; they are not changed


def read_shards(folder: Path, index: Index, part: str, like: Likeness) -> dict[str, Tensor]:
    """The tensors of a part, whose index this is: those that are sharded in this run as shards, the others whole; all fresh."""
    named = {name.removeprefix(f"{part}/"): one for name, one in index.items()}
    targets = {name: _target(one, like.get(name)) for name, one in named.items()}
    with warnings.catch_warnings():
        # Each process reads for itself: there is nothing to be agreed on.
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            load(
                {f"{part}/{name}": tensor for name, tensor in targets.items()},
                storage_reader=Reading(folder, index),
                planner=DefaultLoadPlanner(flatten_state_dict=False),
                no_dist=True,
            )
        except CheckpointException as error:
            reason = next(iter(error.failures.values()))[0]
            raise CheckpointError(f"the shards of {part} in {folder} cannot be read ({reason})") from error
    return targets


class Reading(StorageReader):
    def __init__(self, folder: Path, index: Index) -> None:
        self.folder = folder
        self.files = {
            MetadataIndex(name, piece.offsets): piece.file for name, one in index.items() for piece in one.pieces
        }
        self.metadata = Metadata({name: _metadata(one) for name, one in index.items()})

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        from safetensors import safe_open

        wanted: defaultdict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            wanted[self.files[item.storage_index]].append(item)
        for file, items in wanted.items():
            with safe_open(self.folder / f"{file}.safetensors", framework="pt") as pieces:
                for item in items:
                    target = planner.resolve_tensor(item)
                    target.copy_(_read(pieces, item))
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


def _read(pieces: Any, item: ReadItem) -> Tensor:
    """Any: safetensors has no types. Only the wanted rows and columns are read."""
    name = piece_name(item.storage_index.fqn, tuple(item.storage_index.offset or ()))
    if not item.lengths:
        return pieces.get_tensor(name)  # type: ignore[no-any-return]
    box = tuple(slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths))
    return pieces.get_slice(name)[box]  # type: ignore[no-any-return]


def _target(saved: Sharded, like: Tensor | None) -> Tensor:
    dtype: torch.dtype = getattr(torch, saved.dtype)
    if isinstance(like, DTensor) and tuple(like.shape) == saved.size:
        return torch.empty_like(like, dtype=dtype, requires_grad=False)
    return torch.empty(saved.size, dtype=dtype)


def _metadata(saved: Sharded) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)) for piece in saved.pieces]
    return TensorStorageMetadata(TensorProperties(getattr(torch, saved.dtype)), torch.Size(saved.size), chunks)
