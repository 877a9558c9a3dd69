"""The runtime that a migrated script runs on: an Accelerator over CPU, GPUs, machines and TPUs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel_runtime.unsupported import absent
from accel_runtime.world import may_seed

if TYPE_CHECKING:
    from accel_runtime.accelerator import Accelerator as Accelerator
    from accel_runtime.accumulation import GradientAccumulationPlugin as GradientAccumulationPlugin
    from accel_runtime.availability import is_rich_available as is_rich_available
    from accel_runtime.big_modeling import cpu_offload as cpu_offload
    from accel_runtime.big_modeling import cpu_offload_with_hook as cpu_offload_with_hook
    from accel_runtime.big_modeling import disk_offload as disk_offload
    from accel_runtime.big_modeling import dispatch_model as dispatch_model
    from accel_runtime.big_modeling import init_empty_weights as init_empty_weights
    from accel_runtime.big_modeling import init_on_device as init_on_device
    from accel_runtime.big_modeling import load_checkpoint_and_dispatch as load_checkpoint_and_dispatch
    from accel_runtime.configuration import DataLoaderConfiguration as DataLoaderConfiguration
    from accel_runtime.configuration import ProjectConfiguration as ProjectConfiguration
    from accel_runtime.data.skipping import skip_first_batches as skip_first_batches
    from accel_runtime.handlers import AORecipeKwargs as AORecipeKwargs
    from accel_runtime.handlers import AutocastKwargs as AutocastKwargs
    from accel_runtime.handlers import DDPCommunicationHookType as DDPCommunicationHookType
    from accel_runtime.handlers import DistributedDataParallelKwargs as DistributedDataParallelKwargs
    from accel_runtime.handlers import GradScalerKwargs as GradScalerKwargs
    from accel_runtime.handlers import InitProcessGroupKwargs as InitProcessGroupKwargs
    from accel_runtime.handlers import TERecipeKwargs as TERecipeKwargs
    from accel_runtime.large.device_map import infer_auto_device_map as infer_auto_device_map
    from accel_runtime.large.loading import load_checkpoint_in_model as load_checkpoint_in_model
    from accel_runtime.local_sgd import LocalSGD as LocalSGD
    from accel_runtime.memory import find_executable_batch_size as find_executable_batch_size
    from accel_runtime.notebook import debug_launcher as debug_launcher
    from accel_runtime.notebook import notebook_launcher as notebook_launcher
    from accel_runtime.operations import broadcast_object_list as broadcast_object_list
    from accel_runtime.processes import DistributedType as DistributedType
    from accel_runtime.profiling import ProfileKwargs as ProfileKwargs
    from accel_runtime.seeding import set_seed as set_seed
    from accel_runtime.state import PartialState as PartialState
    from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin as DeepSpeedPlugin
    from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
    from accel_runtime.tracking import Silent as Silent
    from accel_runtime.utils.random import synchronize_rng_states as synchronize_rng_states

# Imported at first use, so that the command line answers without torch.
_PLACES = {
    "AORecipeKwargs": "handlers",
    "Accelerator": "accelerator",
    "AutocastKwargs": "handlers",
    "DDPCommunicationHookType": "handlers",
    "DataLoaderConfiguration": "configuration",
    "DeepSpeedPlugin": "strategies.deepspeed_plugin",
    "DistributedDataParallelKwargs": "handlers",
    "DistributedType": "processes",
    "FullyShardedDataParallelPlugin": "strategies.fsdp_plugin",
    "GradScalerKwargs": "handlers",
    "GradientAccumulationPlugin": "accumulation",
    "InitProcessGroupKwargs": "handlers",
    "LocalSGD": "local_sgd",
    "PartialState": "state",
    "ProfileKwargs": "profiling",
    "ProjectConfiguration": "configuration",
    "Silent": "tracking",
    "TERecipeKwargs": "handlers",
    "cpu_offload": "big_modeling",
    "cpu_offload_with_hook": "big_modeling",
    "debug_launcher": "notebook",
    "disk_offload": "big_modeling",
    "dispatch_model": "big_modeling",
    "find_executable_batch_size": "memory",
    "infer_auto_device_map": "large.device_map",
    "init_empty_weights": "big_modeling",
    "init_on_device": "big_modeling",
    "load_checkpoint_and_dispatch": "big_modeling",
    "load_checkpoint_in_model": "large.loading",
    "notebook_launcher": "notebook",
    "is_rich_available": "availability",
    "set_seed": "seeding",
    "broadcast_object_list": "operations",
    "synchronize_rng_states": "utils.random",
    "skip_first_batches": "data.skipping",
}

# The version of Accelerate whose API this is: scripts compare it. Our own stands behind a plus.
_API = "1.15.0"

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return f"{_API}+accel.{_own_version()}"
    if name not in _PLACES:
        return absent(__name__)(name)
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    if may_seed(os.environ):
        # Here, since a script imports its Accelerator before it draws a split, data or weights.
        import_module(f"{__name__}.seeding").seed_alike(os.environ)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("accel-migrate")
    except PackageNotFoundError:
        return "0"  # a source tree that is not installed
