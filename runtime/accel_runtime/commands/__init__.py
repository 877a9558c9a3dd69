"""Where Accelerate has its commands; ours are in `cli`, and the command is `accel`."""

from accel_runtime.unsupported import absent

__getattr__ = absent(__name__)
