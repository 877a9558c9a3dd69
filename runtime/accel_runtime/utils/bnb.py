"""Where scripts for Accelerate import from; each name says what to use."""

from accel_runtime.unsupported import absent

__getattr__ = absent(__name__)
