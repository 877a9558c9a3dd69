"""bfloat16: has the range of float32, so gradients need no scaling."""

from __future__ import annotations

import torch

from accel_runtime.precision.autocast import Autocast


class Bf16(Autocast):
    name = "bf16"
    dtype = torch.bfloat16
