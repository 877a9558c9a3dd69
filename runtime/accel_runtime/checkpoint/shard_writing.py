"""Saving sharded tensors: torch plans which process writes which piece, and the pieces become parts like all others."""

from __future__ import annotations

import warnings
from typing import Any

import msgspec
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from accel_runtime.checkpoint.process_group import CheckpointGroup
from accel_runtime.checkpoint.shard_index import NAME, Block, Index, block_name, sharded_as, shards_of
from accel_runtime.checkpoint.writing import Part
from accel_runtime.errors import CheckpointError


def shared_out(parts: list[Part], group: CheckpointGroup) -> list[Part]:
    """Of parts that every process has, what this one writes. Every process must come here with the same parts.

    A part with a sharded tensor has all of its tensors among the shards; the others are written by process 0.
    """
    sharded = [part for part in parts if any(isinstance(tensor, DTensor) for tensor in part.tensors.values())]
    writer = Collecting(group.world.rank)
    _plan({f"{part.name}/{name}": tensor for part in sharded for name, tensor in part.tensors.items()}, writer, group)
    own = [Part(shards_of(group.world.rank), writer.pieces)]
    if not group.world.is_main:
        return own
    names = {part.name for part in sharded}
    rest = [Part(part.name, {}, part.node or {"dict": []}) if part.name in names else part for part in parts]
    return [*own, Part(NAME, {}, msgspec.to_builtins(writer.index)), *rest]


class Collecting(StorageWriter):
    """Writes nothing: it keeps the pieces and the index, which get their digests with the rest of the checkpoint."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.pieces: dict[str, Tensor] = {}
        self.index: Index = {}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results = []
        for item in plan.items:
            tensor = planner.resolve_data(item)
            assert isinstance(tensor, Tensor)
            self.pieces[block_name(item.index.fqn, tuple(item.index.offset or ()))] = tensor.detach()
            results.append(WriteResult(item.index, tensor.nbytes, self.rank))
        written: Future[list[WriteResult]] = Future()
        written.set_result(results)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On process 0, which hears what all have."""
        ranks = {(one.index.fqn, one.index.offset): one.storage_data for some in results for one in some}
        for name, tensor in metadata.state_dict_metadata.items():
            assert isinstance(tensor, TensorStorageMetadata)
            blocks = [
                Block(tuple(chunk.offsets), tuple(chunk.sizes), ranks[name, chunk.offsets]) for chunk in tensor.chunks
            ]
            self.index[name] = sharded_as(name, tensor.properties.dtype, tuple(tensor.size), blocks)

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def _plan(tensors: dict[str, Tensor], writer: Collecting, group: CheckpointGroup) -> None:
    with warnings.catch_warnings():
        # It is not unknown to us that one process is alone.
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            save(
                tensors,
                storage_writer=writer,
                # What is not sharded is written by process 0, as with every other strategy.
                planner=DefaultSavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=True),
                process_group=group.handle,
                no_dist=group.handle is None,
            )
        except CheckpointException as error:
            reasons = "; ".join(f"process {rank}: {failure[0]}" for rank, failure in error.failures.items())
            raise CheckpointError(f"the shards could not be saved ({reasons}); nothing was written") from error
