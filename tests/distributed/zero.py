"""What the tests of DeepSpeed share."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from accel_runtime import Accelerator, DeepSpeedPlugin

from tests.distributed.transformer import ACCUMULATION

# Seconds; importing DeepSpeed alone takes several on a machine that does other things too.
PATIENCE = 250
# Weights below this number of elements are never sharded by default, and all of this model's are.
SHARDED = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
if find_spec("deepspeed"):
    # Which an engine imports when it starts, and torch's compiler with it: here once, and not in every process of every world.
    import_module("deepspeed.runtime.zero.muon.muon_optimizer")


def accelerator(precision: str = "no", steps: int = ACCUMULATION, **plugin: Any) -> Accelerator:
    return Accelerator(
        cpu=True,
        mixed_precision=precision,
        gradient_accumulation_steps=steps,
        deepspeed_plugin=DeepSpeedPlugin(**plugin),
    )
