"""Clipping of sharded gradients: each process scales its own shards by what all of them measure together."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from accel_runtime.shards import local


def clip_norm(weights: list[Tensor], max_norm: float, norm_type: float) -> Tensor:
    """Scales the gradients down to a norm; returns the norm they had, the same plain tensor on every process."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    # Every process must measure, also one whose shards are all empty.
    norm = _norm(gradients, norm_type)
    share = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in gradients:
        local(gradient).mul_(share.to(gradient.device))
    return norm


def clip_value(weights: list[Tensor], clip_value: float) -> None:
    for weight in weights:
        if weight.grad is not None:
            local(weight.grad).clamp_(-clip_value, clip_value)


def _norm(gradients: list[Tensor], kind: float) -> Tensor:
    """Torch's own takes no maximum over an empty shard, and such shards are usual: of a bias, for one."""
    sharded = [gradient for gradient in gradients if isinstance(gradient, DTensor)]
    whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
    if not sharded:
        return torch.nn.utils.get_total_norm(whole, kind)
    ours = torch.nn.utils.get_total_norm([shard for one in sharded if (shard := one.to_local()).numel()], kind)
    mesh = sharded[0].device_mesh
    group = mesh.get_group()
    if dist.get_world_size(group) == 1 and not whole:
        return ours
    ours = ours.to(mesh.device_type, torch.float32)
    if kind == math.inf:
        dist.all_reduce(ours, dist.ReduceOp.MAX, group)
        return torch.maximum(ours, torch.nn.utils.get_total_norm(whole, kind)) if whole else ours
    power = ours**kind
    dist.all_reduce(power, group=group)
    if whole:
        power += torch.nn.utils.get_total_norm(whole, kind) ** kind
    return power ** (1 / kind)
