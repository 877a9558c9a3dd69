"""The face that scripts for Accelerate import from: `from accel_runtime.utils import set_seed, gather_object, ...`.

Nothing of the runtime is defined here or below: this package imports it, and nothing of it imports this package.
"""

from accel_runtime.unsupported import absent
from accel_runtime.utils.constants import *  # noqa: F403
from accel_runtime.utils.dataclasses import *  # noqa: F403
from accel_runtime.utils.deepspeed import *  # noqa: F403
from accel_runtime.utils.environment import *  # noqa: F403
from accel_runtime.utils.imports import *  # noqa: F403
from accel_runtime.utils.memory import *  # noqa: F403
from accel_runtime.utils.modeling import *  # noqa: F403
from accel_runtime.utils.offload import *  # noqa: F403
from accel_runtime.utils.operations import *  # noqa: F403
from accel_runtime.utils.other import *  # noqa: F403
from accel_runtime.utils.random import *  # noqa: F403
from accel_runtime.utils.tqdm import *  # noqa: F403
from accel_runtime.utils.versions import *  # noqa: F403

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("absent",)]

__getattr__ = absent(__name__)
