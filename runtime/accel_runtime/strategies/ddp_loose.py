"""What an optimizer steps and no prepared model has: weights of a criterion, and plain tensors such as a latent code."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter

from accel_runtime.errors import UsageError


class Loose(Module):
    """A model of such weights, for an exchange."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        # Not by register_parameter, which takes no plain tensor.
        self._parameters.update({str(number): weight for number, weight in enumerate(weights)})  # type: ignore[misc]


def refuse_own(weights: list[Tensor]) -> None:
    """Refuses plain tensors that are each process's own, which may be meant so; every process must ask."""
    plain = [weight.detach().double() for weight in weights if not isinstance(weight, Parameter)]
    if not plain:
        return
    own = torch.stack([torch.stack([one.sum(), one.abs().sum(), one.square().sum()]) for one in plain]).nan_to_num()
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    for index, one in enumerate(plain):
        if any(not torch.equal(other[index], everyone[0][index]) for other in everyone):
            raise UsageError(
                f"an optimizer steps a tensor of shape {tuple(one.shape)} that differs from process to process, and its "
                "gradients would be averaged; make it equal on all of them before prepare(), or leave its optimizer out of "
                "prepare() where each process is to have its own"
            )
