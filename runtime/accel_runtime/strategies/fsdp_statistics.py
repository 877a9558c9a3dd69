"""Running statistics, which are not sharded: all processes go by those of process 0, as under DDP."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase


def share_statistics(model: Module) -> None:
    """Before each forward pass; else each process would evaluate its samples by statistics of its own."""
    layers = [one for one in model.modules() if isinstance(one, _NormBase) and one.track_running_stats]
    if layers and dist.get_world_size() > 1:
        model.register_forward_pre_hook(functools.partial(_take_from_main, layers))


def _take_from_main(layers: list[_NormBase], *_: Any) -> None:
    for layer in layers:
        for buffer in layer.buffers(recurse=False):
            dist.broadcast(buffer, src=0)
