"""What scripts for Accelerate import about DeepSpeed."""

from accel_runtime.not_here import absent
from accel_runtime.strategies.deepspeed_plugin import DummyOptim, DummyScheduler

__all__ = ["DummyOptim", "DummyScheduler"]

__getattr__ = absent(__name__)
