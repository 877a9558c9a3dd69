"""The face that scripts of the peer import from: `from accel_runtime.utils import set_seed, gather_object, ...`.

Nothing is defined here; every name lives where it belongs.
"""

from accel_runtime.accumulation import GradientAccumulationPlugin
from accel_runtime.availability import (
    is_bf16_available,
    is_cuda_available,
    is_deepspeed_available,
    is_mlflow_available,
    is_mps_available,
    is_rich_available,
    is_safetensors_available,
    is_tensorboard_available,
    is_torch_xla_available,
    is_transformers_available,
    is_wandb_available,
    is_xpu_available,
)
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
from accel_runtime.memory import clear_device_cache, find_executable_batch_size, release_memory
from accel_runtime.operations import (
    broadcast,
    broadcast_object_list,
    concatenate,
    convert_to_fp32,
    extract_model_from_parallel,
    find_batch_size,
    gather,
    gather_object,
    listify,
    pad_across_processes,
    recursively_apply,
    reduce,
    send_to_device,
    slice_tensors,
    wait_for_everyone,
)
from accel_runtime.processes import DistributedType
from accel_runtime.profiling import ProfileKwargs
from accel_runtime.progress import tqdm
from accel_runtime.seeding import set_seed
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin, DummyOptim, DummyScheduler
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
    "DummyOptim",
    "DummyScheduler",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "LoggerType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "TERecipeKwargs",
    "TorchDynamoPlugin",
    "broadcast",
    "broadcast_object_list",
    "clear_device_cache",
    "concatenate",
    "convert_to_fp32",
    "extract_model_from_parallel",
    "find_batch_size",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "is_bf16_available",
    "is_cuda_available",
    "is_deepspeed_available",
    "is_mlflow_available",
    "is_mps_available",
    "is_rich_available",
    "is_safetensors_available",
    "is_tensorboard_available",
    "is_torch_xla_available",
    "is_transformers_available",
    "is_wandb_available",
    "is_xpu_available",
    "listify",
    "pad_across_processes",
    "recursively_apply",
    "reduce",
    "release_memory",
    "send_to_device",
    "set_seed",
    "slice_tensors",
    "tqdm",
    "wait_for_everyone",
]
