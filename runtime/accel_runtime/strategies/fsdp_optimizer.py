"""The state of an optimizer whose weights are sharded, whole: as the same optimizer gives it on one process."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from accel_runtime.collectives import Collectives
from accel_runtime.shards import whole
from accel_runtime.tree import map_leaves


def whole_optimizer_state(optimizer: Optimizer, collectives: Collectives) -> dict[str, Any]:
    """On every process: all of them must come here."""
    # A process that comes alone would else take the weights that the others gather in a forward pass for its state.
    collectives.announce("optimizer.state_dict")
    return map_leaves(_copied_whole, optimizer.state_dict())  # type: ignore[no-any-return]


def _copied_whole(leaf: Any) -> Any:
    """A copy of every tensor: one that was gathered is a copy, and the next step must not change the rest of the state."""
    if not isinstance(leaf, Tensor):
        return leaf
    return (whole(leaf) if isinstance(leaf, DTensor) else leaf).clone()
