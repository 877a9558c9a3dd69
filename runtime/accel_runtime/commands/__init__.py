"""Where Accelerate has its commands; ours are in `cli`, and the command is `accel`."""

from accel_runtime.not_here import absent

__getattr__ = absent(__name__)
