"""Where scripts for Accelerate import launchers from."""

from accel_runtime.notebook import debug_launcher, notebook_launcher
from accel_runtime.unsupported import absent

__all__ = ["debug_launcher", "notebook_launcher"]

__getattr__ = absent(__name__)
