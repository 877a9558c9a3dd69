"""What scripts for Accelerate import to configure it."""

from accel_runtime.accumulation import GradientAccumulationPlugin
from accel_runtime.configuration import DataLoaderConfiguration, ProjectConfiguration, TorchDynamoPlugin
from accel_runtime.handlers import (
    AORecipeKwargs,
    AutocastKwargs,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    TERecipeKwargs,
)
from accel_runtime.processes import DistributedType
from accel_runtime.profiling import ProfileKwargs
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin
from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin
from accel_runtime.tracking import LoggerType

__all__ = [
    "AORecipeKwargs",
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DeepSpeedPlugin",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "LoggerType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "TERecipeKwargs",
    "TorchDynamoPlugin",
]
