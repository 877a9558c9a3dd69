"""Sparse gradients, of `nn.Embedding(..., sparse=True)`: NCCL has no sum of them, so rows are gathered and added up."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.futures import Future
from torch.nn import Embedding, EmbeddingBag, Module
from torch.nn.parallel import DistributedDataParallel


def sparse_weights(model: Module) -> set[Tensor]:
    """The weights whose gradients are sparse."""
    return {layer.weight for layer in model.modules() if isinstance(layer, Embedding | EmbeddingBag) and layer.sparse}


def exchange_rows(model: DistributedDataParallel) -> None:
    """Gives the model a hook that averages sparse gradients by their rows, and others as torch does."""
    # Without annotations, which torch would read: here they are texts.
    model.register_comm_hook(state=model.process_group, hook=lambda group, bucket: average(group, bucket))


def average(group: Any, bucket: Any) -> Future[Tensor]:
    """The mean of a message over all processes; torch sends each sparse gradient by itself."""
    gradient = bucket.buffer()
    if gradient.layout is not torch.sparse_coo:
        return default_hooks.allreduce_hook(group, bucket)
    done: Future[Tensor] = Future()
    done.set_result(_mean_of_rows(gradient.coalesce(), group))
    return done


def _mean_of_rows(gradient: Tensor, group: Any) -> Tensor:
    size = dist.get_world_size(group)
    own = torch.tensor([gradient._nnz()], device=gradient.device)
    counts = [torch.empty_like(own) for _ in range(size)]
    dist.all_gather(counts, own, group=group)
    lengths = [int(count) for count in counts]
    indices = torch.cat(_gathered(gradient.indices().t(), lengths, group)).t()
    values = torch.cat(_gathered(gradient.values() / size, lengths, group))
    # Rows that several processes have are added up; one that nobody has must not appear, for SparseAdam would change it.
    return torch.sparse_coo_tensor(indices, values, gradient.shape, device=gradient.device).coalesce()


def _gathered(rows: Tensor, lengths: list[int], group: Any) -> list[Tensor]:
    """The rows of each process, of which each has another number."""
    padded = rows.new_zeros(max(lengths), *rows.shape[1:])
    padded[: len(rows)] = rows
    received = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(received, padded, group=group)
    return [part[:length] for part, length in zip(received, lengths)]
