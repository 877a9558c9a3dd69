"""The face that scripts for Accelerate import from: `from accel_runtime.utils import set_seed, gather_object, ...`.

Nothing of the runtime is defined here or below: this package imports it, and nothing of it imports this package.
"""

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
from accel_runtime.memory import clear_device_cache, find_executable_batch_size, release_memory
from accel_runtime.not_here import absent
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
from accel_runtime.utils import imports
from accel_runtime.utils.environment import (
    clear_environment,
    parse_choice_from_env,
    parse_flag_from_env,
    patch_environment,
    str_to_bool,
)
from accel_runtime.utils.other import (
    convert_bytes,
    get_free_port,
    is_compiled_module,
    is_peft_model,
    is_port_in_use,
    load,
    merge_dicts,
    recursive_getattr,
    save,
    write_basic_config,
)
from accel_runtime.utils.versions import compare_versions, is_torch_version

globals().update({name: getattr(imports, name) for name in imports.__all__})

__getattr__ = absent(__name__)

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
    "clear_environment",
    "compare_versions",
    "concatenate",
    "convert_bytes",
    "convert_to_fp32",
    "extract_model_from_parallel",
    "find_batch_size",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "get_free_port",
    "is_compiled_module",
    "is_peft_model",
    "is_port_in_use",
    "is_torch_version",
    "listify",
    "load",
    "merge_dicts",
    "pad_across_processes",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "recursive_getattr",
    "recursively_apply",
    "reduce",
    "release_memory",
    "save",
    "send_to_device",
    "set_seed",
    "slice_tensors",
    "str_to_bool",
    "tqdm",
    "wait_for_everyone",
    "write_basic_config",
    *imports.__all__,
]
