"""Where scripts for Accelerate import the progress bar from."""

from accel_runtime.progress import tqdm

__all__ = ["tqdm"]
