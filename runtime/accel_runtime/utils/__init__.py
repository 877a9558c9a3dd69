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
from accel_runtime.large.aligning import (
    align_module_device,
    has_offloaded_params,
)
from accel_runtime.large.device_map import (
    check_device_map,
    check_tied_parameters_in_config,
    check_tied_parameters_on_same_device,
    infer_auto_device_map,
)
from accel_runtime.large.loading import (
    load_checkpoint_in_model,
    load_offloaded_weights,
    load_state_dict,
)
from accel_runtime.large.offload import (
    OffloadedWeightsLoader,
    PrefixedDataset,
    extract_submodules_state_dict,
    load_offloaded_weight,
    offload_state_dict,
    offload_weight,
    save_offload_index,
)
from accel_runtime.large.sizes import (
    CustomDtype,
    calculate_maximum_sizes,
    compute_module_sizes,
    convert_file_size_to_int,
    dtype_byte_size,
    get_balanced_memory,
    get_max_layer_size,
    get_max_memory,
)
from accel_runtime.large.tensors import (
    find_tied_parameters,
    id_tensor_storage,
    named_module_tensors,
    retie_parameters,
    set_module_tensor_to_device,
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
    "CustomDtype",
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
    "OffloadedWeightsLoader",
    "PrefixedDataset",
    "ProfileKwargs",
    "ProjectConfiguration",
    "TERecipeKwargs",
    "TorchDynamoPlugin",
    "align_module_device",
    "broadcast",
    "broadcast_object_list",
    "calculate_maximum_sizes",
    "check_device_map",
    "check_tied_parameters_in_config",
    "check_tied_parameters_on_same_device",
    "clear_device_cache",
    "clear_environment",
    "compare_versions",
    "compute_module_sizes",
    "concatenate",
    "convert_bytes",
    "convert_file_size_to_int",
    "convert_to_fp32",
    "dtype_byte_size",
    "extract_model_from_parallel",
    "extract_submodules_state_dict",
    "find_batch_size",
    "find_executable_batch_size",
    "find_tied_parameters",
    "gather",
    "gather_object",
    "get_balanced_memory",
    "get_free_port",
    "get_max_layer_size",
    "get_max_memory",
    "has_offloaded_params",
    "id_tensor_storage",
    "infer_auto_device_map",
    "is_compiled_module",
    "is_peft_model",
    "is_port_in_use",
    "is_torch_version",
    "listify",
    "load",
    "load_checkpoint_in_model",
    "load_offloaded_weight",
    "load_offloaded_weights",
    "load_state_dict",
    "merge_dicts",
    "named_module_tensors",
    "offload_state_dict",
    "offload_weight",
    "pad_across_processes",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "recursive_getattr",
    "recursively_apply",
    "reduce",
    "release_memory",
    "retie_parameters",
    "save",
    "save_offload_index",
    "send_to_device",
    "set_module_tensor_to_device",
    "set_seed",
    "slice_tensors",
    "str_to_bool",
    "tqdm",
    "wait_for_everyone",
    "write_basic_config",
    *imports.__all__,
]
