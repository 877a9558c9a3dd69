"""A progress bar on one process of each machine."""

from __future__ import annotations

import os
from typing import Any

from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.world import world_from


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """`tqdm.auto.tqdm`, shown on the first process of each machine, or on all with `main_process_only=False`."""
    if args and isinstance(args[0], bool):
        raise UsageError("tqdm's first argument is what it iterates over; pass main_process_only by name")
    try:
        from tqdm.auto import tqdm as bar
    except ImportError:
        raise ConfigError("accel_runtime.utils.tqdm needs the package tqdm; pip install tqdm") from None
    hidden = main_process_only and not world_from(os.environ).is_local_main
    return bar(*args, **{**kwargs, "disable": kwargs.get("disable") or hidden})
