"""Where Accelerate has helpers for its own tests; each name says what to use."""

from accel_runtime.unsupported import absent

__getattr__ = absent(__name__)
