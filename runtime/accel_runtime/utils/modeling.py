"""What scripts for Accelerate import about the modules of large models."""

from accel_runtime.large.aligning import (
    align_module_device,
    has_offloaded_params,
)
from accel_runtime.large.device_map import (
    check_device_map,
    check_tied_parameters_in_config,
    check_tied_parameters_on_same_device,
    clean_device_map,
    get_module_leaves,
    infer_auto_device_map,
)
from accel_runtime.large.loading import (
    get_state_dict_from_offload,
    get_state_dict_offloaded_model,
    load_checkpoint_in_model,
    load_offloaded_weights,
    load_state_dict,
)
from accel_runtime.large.offload import (
    load_offloaded_weight,
    offload_weight,
    save_offload_index,
)
from accel_runtime.large.sizes import (
    CustomDtype,
    calculate_maximum_sizes,
    compute_module_sizes,
    compute_module_total_buffer_size,
    convert_file_size_to_int,
    dtype_byte_size,
    get_balanced_memory,
    get_max_layer_size,
    get_max_memory,
)
from accel_runtime.large.tensors import (
    check_device_same,
    find_tied_parameters,
    get_non_persistent_buffers,
    id_tensor_storage,
    named_module_tensors,
    retie_parameters,
    set_module_tensor_to_device,
)
from accel_runtime.operations import extract_model_from_parallel
from accel_runtime.unsupported import absent
from accel_runtime.utils.constants import WEIGHTS_INDEX_NAME
from accel_runtime.utils.other import is_peft_model

__all__ = [
    "WEIGHTS_INDEX_NAME",
    "CustomDtype",
    "align_module_device",
    "calculate_maximum_sizes",
    "check_device_map",
    "check_device_same",
    "check_tied_parameters_in_config",
    "check_tied_parameters_on_same_device",
    "clean_device_map",
    "compute_module_sizes",
    "compute_module_total_buffer_size",
    "convert_file_size_to_int",
    "dtype_byte_size",
    "extract_model_from_parallel",
    "find_tied_parameters",
    "get_balanced_memory",
    "get_max_layer_size",
    "get_max_memory",
    "get_module_leaves",
    "get_non_persistent_buffers",
    "get_state_dict_from_offload",
    "get_state_dict_offloaded_model",
    "has_offloaded_params",
    "id_tensor_storage",
    "infer_auto_device_map",
    "is_peft_model",
    "load_checkpoint_in_model",
    "load_offloaded_weight",
    "load_offloaded_weights",
    "load_state_dict",
    "named_module_tensors",
    "offload_weight",
    "retie_parameters",
    "save_offload_index",
    "set_module_tensor_to_device",
]

__getattr__ = absent(__name__)
