"""What scripts for Accelerate import about seeds."""

from accel_runtime.seeding import set_seed

__all__ = ["set_seed"]
