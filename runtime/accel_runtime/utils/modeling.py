"""Where scripts for Accelerate import parts of large models from; each name says what to use."""

from accel_runtime.not_here import absent
from accel_runtime.operations import extract_model_from_parallel

__all__ = ["extract_model_from_parallel"]

__getattr__ = absent(__name__)
