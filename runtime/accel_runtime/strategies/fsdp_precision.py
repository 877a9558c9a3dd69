"""In which type weights are gathered, and gradients are added up."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase

from accel_runtime.strategies.fsdp_plugin import Sharding

WIDE = MixedPrecisionPolicy()


def policy_for(sharding: Sharding, device: torch.device) -> MixedPrecisionPolicy:
    """The script's, or what autocast would make of the weights anyway, in half of the bytes.

    Not on the CPU: its normalisation takes no narrow weights beside wide inputs, and its memory is not what is short.
    Inputs are left to autocast, which runs in float32 what must be, and sums over processes are wide.
    """
    if sharding.precision is not None:
        return sharding.precision
    if sharding.narrow is None or device.type == "cpu":
        return WIDE
    return MixedPrecisionPolicy(sharding.narrow, torch.float32, cast_forward_inputs=False)


def stays_wide(module: Module) -> bool:
    """Whether the module is gathered by itself and wide: running statistics are, and weights beside them must be."""
    return isinstance(module, _NormBase) and any(True for _ in module.parameters())
