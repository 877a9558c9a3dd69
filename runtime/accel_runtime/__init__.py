"""The runtime that a migrated script runs on: an Accelerator over CPU, GPUs, machines and TPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_runtime.accelerator import Accelerator as Accelerator
    from accel_runtime.notebook import debug_launcher as debug_launcher
    from accel_runtime.notebook import notebook_launcher as notebook_launcher

# Imported at first use, so that the command line answers without torch.
_PLACES = {
    "Accelerator": "accel_runtime.accelerator",
    "debug_launcher": "accel_runtime.notebook",
    "notebook_launcher": "accel_runtime.notebook",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
