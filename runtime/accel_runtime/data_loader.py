"""Where scripts for Accelerate import prepared loaders from; what shards them here has other names."""

from accel_runtime.data.loader import PreparedLoader
from accel_runtime.data.skipping import skip_first_batches
from accel_runtime.not_here import absent

# For isinstance: on one process and on many, every prepared loader is one.
DataLoaderShard = PreparedLoader

__all__ = ["DataLoaderShard", "skip_first_batches"]

__getattr__ = absent(__name__)
