"""The runtime that a migrated script runs on: an Accelerator over CPU, GPUs, machines and TPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_runtime.accelerator import Accelerator as Accelerator
    from accel_runtime.accumulation import GradientAccumulationPlugin as GradientAccumulationPlugin
    from accel_runtime.configuration import DataLoaderConfiguration as DataLoaderConfiguration
    from accel_runtime.configuration import ProjectConfiguration as ProjectConfiguration
    from accel_runtime.data.skipping import skip_first_batches as skip_first_batches
    from accel_runtime.handlers import AORecipeKwargs as AORecipeKwargs
    from accel_runtime.handlers import AutocastKwargs as AutocastKwargs
    from accel_runtime.handlers import DistributedDataParallelKwargs as DistributedDataParallelKwargs
    from accel_runtime.handlers import GradScalerKwargs as GradScalerKwargs
    from accel_runtime.handlers import InitProcessGroupKwargs as InitProcessGroupKwargs
    from accel_runtime.handlers import TERecipeKwargs as TERecipeKwargs
    from accel_runtime.local_sgd import LocalSGD as LocalSGD
    from accel_runtime.memory import find_executable_batch_size as find_executable_batch_size
    from accel_runtime.notebook import debug_launcher as debug_launcher
    from accel_runtime.notebook import notebook_launcher as notebook_launcher
    from accel_runtime.processes import DistributedType as DistributedType
    from accel_runtime.profiling import ProfileKwargs as ProfileKwargs
    from accel_runtime.seeding import set_seed as set_seed
    from accel_runtime.state import PartialState as PartialState
    from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin as DeepSpeedPlugin
    from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin

# Imported at first use, so that the command line answers without torch.
_PLACES = {
    "AORecipeKwargs": "handlers",
    "Accelerator": "accelerator",
    "AutocastKwargs": "handlers",
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
    "TERecipeKwargs": "handlers",
    "debug_launcher": "notebook",
    "find_executable_batch_size": "memory",
    "notebook_launcher": "notebook",
    "set_seed": "seeding",
    "skip_first_batches": "data.skipping",
}

# Names of the peer that are not here, each with what to use instead.
_INSTEAD = {
    "AcceleratorState": "ask accelerator.state, or make a PartialState",
    "GradientState": "ask accelerator.gradient_state",
    **dict.fromkeys(
        ("cpu_offload", "disk_offload", "dispatch_model", "infer_auto_device_map", "init_empty_weights"),
        "inference with models larger than memory is not part of this runtime",
    ),
    **dict.fromkeys(
        ("load_checkpoint_and_dispatch", "load_checkpoint_in_model", "prepare_pippy"),
        "inference with models larger than memory is not part of this runtime",
    ),
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _INSTEAD:
        raise ImportError(f"accel_runtime has no {name}: {_INSTEAD[name]}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
