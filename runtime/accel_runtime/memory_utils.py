"""The older place of `find_executable_batch_size` in Accelerate."""

from accel_runtime.memory import find_executable_batch_size, release_memory

__all__ = ["find_executable_batch_size", "release_memory"]
