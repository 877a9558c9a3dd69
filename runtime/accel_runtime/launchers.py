"""Where scripts for Accelerate import launchers from."""

from accel_runtime.not_here import absent
from accel_runtime.notebook import debug_launcher, notebook_launcher

__all__ = ["debug_launcher", "notebook_launcher"]

__getattr__ = absent(__name__)
