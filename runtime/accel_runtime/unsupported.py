"""What Accelerate has and this runtime has not, with what to use: said wherever somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

WITHIN_LAYERS = (
    "tensor, sequence and context parallelism are not here; for a model that is too large for one device use strategy "
    "fsdp or deepspeed, for layers that are use torch.distributed.tensor.parallel"
)
BETWEEN_LAYERS = (
    "Megatron-LM, with its tensor and pipeline parallelism, is not here; use strategy fsdp or deepspeed, or train with "
    "Megatron's own scripts"
)

TPU_POD = "a TPU pod is not set up from here; start the script on each of its machines"
OWN_LAUNCHER = "Accelerate's launcher is not used; call accel launch, or notebook_launcher from Python"
FSDP_INSIDE = (
    "prepare() shards a model, save_state and save_model write it, and load_state reads it under any strategy; nothing "
    "of FSDP is called by hand"
)
DEEPSPEED_INSIDE = (
    "prepare() drives DeepSpeed's engine by itself, and what it returns is a plain optimizer or scheduler"
)
FP8_INSIDE = "pass mixed_precision='fp8', with TERecipeKwargs or AORecipeKwargs in kwargs_handlers; prepare() converts"
QUANTISED = "load the model quantised by transformers or bitsandbytes; prepare() leaves its layers as they are"
REGIONS = "pass dynamo_plugin=TorchDynamoPlugin(...), or call torch.compile on the blocks before prepare()"
TRACKER = "a tracker for it is a class of your own: subclass GeneralTracker and pass it in log_with"

PIPELINES = "pipeline parallelism is not here; use torch.distributed.pipelining, or dispatch_model with a device_map"
STATES = "call save_state and load_state of the Accelerator: a checkpoint is there whole or not at all"
NOT_NEEDED = "it is a detail of Accelerate that nothing here needs; leave it out"
PRECISION_INSIDE = "accelerator.autocast() is the region of the run's precision, and prepare() scales losses by itself"

# Modules that hold nothing, with what stands for all of their names.
MODULES = {
    **dict.fromkeys(("commands.env", "commands.merge"), OWN_LAUNCHER),
    "commands.tpu": TPU_POD,
    "checkpointing": STATES,
    "inference": PIPELINES,
    "parallelism_config": WITHIN_LAYERS,
    **dict.fromkeys(
        ("test_utils", "test_utils.testing"),
        "helpers of Accelerate's own tests are not here; ask torch.accelerator for the device, and subprocess for a command",
    ),
    "utils.ao": FP8_INSIDE,
    "utils.bnb": QUANTISED,
    "utils.fsdp_utils": FSDP_INSIDE,
    "utils.launch": OWN_LAUNCHER,
    "utils.megatron_lm": BETWEEN_LAYERS,
    "utils.transformer_engine": FP8_INSIDE,
}

# By the name that is imported.
NAMES = {
    "prepare_pippy": PIPELINES,
    **dict.fromkeys(("get_grad_scaler", "get_mixed_precision_context_manager"), PRECISION_INSIDE),
    **dict.fromkeys(
        (
            "BETA_CP_AVAILABLE_PYTORCH_VERSION",
            "BETA_SP_AVAILABLE_DEEPSPEED_VERSION",
            "BETA_TP_AVAILABLE_PYTORCH_VERSION",
            "BETA_TP_AVAILABLE_TRANSFORMERS_VERSION",
            "DEEPSPEED_MULTINODE_LAUNCHERS",
            "DTENSOR_PYTORCH_VERSION",
            "ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION",
            "FSDP_BACKWARD_PREFETCH",
            "FSDP_MODEL_NAME",
            "MODEL_CONFIGS_TO_MEGATRON_PARSERS",
            "SAGEMAKER_PARALLEL_EC2_INSTANCES",
            "SAGEMAKER_PYTHON_VERSION",
            "SAGEMAKER_PYTORCH_VERSION",
            "SAGEMAKER_TRANSFORMERS_VERSION",
            "STR_OPERATION_TO_FUNC",
            "SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING",
            "ConvertOutputsToFp32",
            "TENSOR_INT_TO_DTYPE",
            "TENSOR_TYPE_TO_INT",
            "TORCH_SAFE_GLOBALS",
            "USE_TORCH_XLA",
            "chained_operation",
            "fallback_allocate",
            "gather_tensor_shape",
            "get_driver_version",
            "get_module_size_with_ties",
            "is_torch_xpu_tensor",
            "move_to_device",
            "parse_bert_config",
            "parse_glm4_moe_config",
            "parse_gpt2_config",
            "parse_llama_config",
            "parse_t5_config",
            "patch_optimizer_step",
            "rich",
            "test_launch",
            "verify_operation",
        ),
        NOT_NEEDED,
    ),
    **dict.fromkeys(("has_repeated_blocks", "is_repeated_blocks"), REGIONS),
    **dict.fromkeys(
        (
            "AbstractTrainStep",
            "BertTrainStep",
            "GPTTrainStep",
            "MegatronEngine",
            "MegatronLMDummyDataLoader",
            "MegatronLMDummyScheduler",
            "MegatronLMOptimizerWrapper",
            "MegatronLMPlugin",
            "MegatronLMSchedulerWrapper",
            "T5TrainStep",
            "add_model_config_to_megatron_parser",
            "avg_losses_across_data_parallel_group",
            "gather_across_data_parallel_groups",
            "megatron_lm_initialize",
            "megatron_lm_prepare_data_loader",
            "megatron_lm_prepare_model_optimizer_scheduler",
            "megatron_lm_prepare_optimizer",
            "megatron_lm_prepare_scheduler",
        ),
        BETWEEN_LAYERS,
    ),
    **dict.fromkeys(
        (
            "DeepSpeedSequenceParallelConfig",
            "ParallelismConfig",
            "TorchContextParallelConfig",
            "TorchTensorParallelConfig",
            "TorchTensorParallelPlugin",
        ),
        WITHIN_LAYERS,
    ),
    **dict.fromkeys(
        (
            "disable_fsdp_ram_efficient_loading",
            "enable_fsdp_ram_efficient_loading",
            "ensure_weights_retied",
            "fsdp2_apply_ac",
            "fsdp2_canonicalize_names",
            "fsdp2_load_full_state_dict",
            "fsdp2_prepare_model",
            "fsdp2_switch_optimizer_parameters",
            "get_fsdp2_grad_scaler",
            "get_parameters_from_modules",
            "load_fsdp_model",
            "load_fsdp_optimizer",
            "save_fsdp_model",
            "save_fsdp_optimizer",
        ),
        FSDP_INSIDE,
    ),
    "merge_fsdp_weights": "accel merge-weights FOLDER OUTPUT does it",
    **dict.fromkeys(
        (
            "DeepSpeedEngineWrapper",
            "DeepSpeedOptimizerWrapper",
            "DeepSpeedSchedulerWrapper",
            "HfDeepSpeedConfig",
            "get_active_deepspeed_plugin",
            "map_pytorch_optim_to_deepspeed",
            "GatheredParameters",
            "compile_regions_deepspeed",
        ),
        DEEPSPEED_INSIDE,
    ),
    **dict.fromkeys(
        (
            "MSAMPRecipeKwargs",
            "apply_fp8_autowrap",
            "contextual_fp8_autocast",
            "convert_model",
            "convert_model_to_fp8_ao",
            "filter_first_and_last_linear_layers",
            "has_ao_layers",
            "has_transformer_engine_layers",
        ),
        FP8_INSIDE,
    ),
    **dict.fromkeys(("BnbQuantizationConfig", "has_4bit_bnb_layers", "load_and_quantize_model"), QUANTISED),
    **dict.fromkeys(("compile_regions", "compile_regions_fsdp2", "has_compiled_regions"), REGIONS),
    **dict.fromkeys(
        (
            "PrepareForLaunch",
            "TORCH_LAUNCH_PARAMS",
            "prepare_deepspeed_cmd_env",
            "prepare_multi_gpu_env",
            "prepare_sagemager_args_inputs",
            "prepare_simple_launcher_cmd_env",
            "prepare_tpu",
            "deepspeed_launcher",
            "multi_gpu_launcher",
            "sagemaker_launcher",
            "simple_launcher",
            "tpu_launcher",
            "tpu_pod_launcher",
        ),
        OWN_LAUNCHER,
    ),
    **dict.fromkeys(("tpu_command_launcher", "tpu_command_parser"), TPU_POD),
    **dict.fromkeys(
        ("config_command", "config_command_parser", "get_config_parser", "get_user_input"),
        "accel config asks how training runs here, and accel config --set KEY=VALUE writes it",
    ),
    **dict.fromkeys(("check_has_model", "create_ascii_table"), NOT_NEEDED),
    **dict.fromkeys(
        ("AimTracker", "ClearMLTracker", "CometMLTracker", "DVCLiveTracker", "SwanLabTracker", "TrackioTracker"),
        TRACKER,
    ),
    "_get_proper_dtype": "getattr(torch, name) is the type of this name",
    "filter_trackers": "log_with refuses a tracker that is not installed, by its name",
    "check_cuda_p2p_ib_support": "leave it out: NCCL finds out by itself which way GPUs can speak to each other",
    "override_numa_affinity": "start the processes under numactl, or with torchrun --numa-binding",
    "set_numa_affinity": "start the processes under numactl, or with torchrun --numa-binding",
    "install_xla": "pip install torch_xla, in the version of the installed torch",
    "ThreadLocalSharedDict": "ask PartialState: it holds what one process knows",
    "DataLoaderAdapter": "isinstance(loader, DataLoaderShard) is true of a prepared loader",
    "MpDeviceLoaderWrapper": "prepare() feeds XLA devices by itself",
}


# Attributes of an Accelerator and of the states.
MEMBERS = {
    **dict.fromkeys(
        (
            "context_parallel_rank",
            "data_parallel_rank",
            "data_parallel_shard_rank",
            "deepspeed_ulysses_dl_adapter",
            "is_composable_parallelism_enabled",
            "maybe_context_parallel",
            "pipeline_parallel_rank",
            "tensor_parallel_rank",
        ),
        WITHIN_LAYERS,
    ),
    "fork_launched": "ask multiprocessing.parent_process(), which is None in a process that nobody forked",
    "fp8_backend": "ask mixed_precision; the recipe that was passed in kwargs_handlers chooses the backend",
    **dict.fromkeys(
        ("deepspeed_plugins", "get_deepspeed_plugin"),
        "make one Accelerator for each engine, and ask its deepspeed_plugin",
    ),
    "downcast_bfloat": "ask mixed_precision: bf16 is chosen by it on XLA too",
    "megatron_lm_plugin": BETWEEN_LAYERS,
    "torch_tp_plugin": WITHIN_LAYERS,
    "select_deepspeed_plugin": "make one Accelerator for each engine, and pass it one deepspeed_plugin",
    "is_xla_gradients_synced": NOT_NEEDED,
    "lomo_backward": "LOMO steps inside its own backward: call optimizer.fused_backward(loss, lr) of the bare optimizer",
    "verify_device_map": "prepare() refuses a model that is spread over devices, on several processes",
}

# Arguments by class, beside those of the Accelerator, which `arguments` has.
ARGUMENTS = {
    "AORecipeKwargs": dict.fromkeys(
        ("pad_inner_dim", "enable_fsdp_float8_all_gather"), "set it in torchao's Float8LinearConfig, passed as config"
    ),
    "TERecipeKwargs": {
        "use_autocast_during_eval": "evaluation runs in fp8 as training does",
        "interval": "Transformer Engine no longer has it",
        "override_linear_precision": "Transformer Engine no longer has it",
        "use_mxfp8_block_scaling": "only delayed scaling is here",
    },
    "DeepSpeedPlugin": {
        "transformer_moe_cls_names": "call deepspeed.utils.set_z3_leaf_modules in the script",
        "enable_msamp": "MS-AMP is not here; use mixed_precision='fp8'",
        "msamp_opt_level": "MS-AMP is not here; use mixed_precision='fp8'",
    },
    "TorchDynamoPlugin": {"use_regional_compilation": REGIONS},
}

# What is imported before it is known whether it is needed (transformers.Trainer, Accelerate's tests): refused when called.
AT_CALL = (
    "AimTracker",
    "ClearMLTracker",
    "CometMLTracker",
    "DVCLiveTracker",
    "DeepSpeedSchedulerWrapper",
    "HfDeepSpeedConfig",
    "ParallelismConfig",
    "SwanLabTracker",
    "TrackioTracker",
    "load_fsdp_model",
    "load_fsdp_optimizer",
    "prepare_multi_gpu_env",
    "prepare_simple_launcher_cmd_env",
    "save_fsdp_model",
    "save_fsdp_optimizer",
    "tpu_command_launcher",
    "tpu_command_parser",
)


@cache
def _refused_at_call(name: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} is not here: {NAMES[name]}")

    return type(name, (), {"__new__": refuse, "__doc__": NAMES[name]})


def absent(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: what to use instead of a name that Accelerate has there."""
    whole = MODULES.get(module.partition(".")[2])

    def missing(name: str) -> Any:
        if name in AT_CALL:
            return _refused_at_call(name)
        instead = NAMES.get(name) or (None if name.startswith("_") else whole)
        if instead is not None:
            raise ImportError(f"{module} has no {name}: {instead}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


def refused_argument(kind: str, given: Mapping[str, Any]) -> str | None:
    """Why an argument that was given cannot be honoured; None when all can."""
    texts = ARGUMENTS.get(kind, {})
    return next(
        (f"{kind}({name}=...): {texts[name]}" for name in given if name in texts and given[name] is not None), None
    )


def instead_of_member(kind: str, name: str) -> str:
    """The text of an AttributeError."""
    said = f"{kind!r} object has no attribute {name!r}"
    return f"{said}: {MEMBERS[name]}" if name in MEMBERS else said


# By the beginning of a flag.
FLAGS = {
    "--use-megatron-lm": BETWEEN_LAYERS,
    "--megatron-lm-": BETWEEN_LAYERS,
    "--use-parallelism-config": WITHIN_LAYERS,
    "--parallelism-config-": WITHIN_LAYERS,
    "--aws-": "a job of SageMaker is started with its own tools; what it sets for torchrun is understood here",
    "--deepspeed-moe-": "call deepspeed.utils.set_z3_leaf_modules in the script",
    **dict.fromkeys(
        ("--deepspeed-hostfile", "--deepspeed-exclusion-", "--deepspeed-inclusion-", "--deepspeed-multinode-"),
        "DeepSpeed's own launcher is not used; run the same accel launch on every machine, or --submit slurm",
    ),
    **dict.fromkeys(
        ("--dynamo-mode", "--dynamo-use-"),
        "pass dynamo_plugin=TorchDynamoPlugin(mode=..., fullgraph=..., dynamic=...) in the script",
    ),
    "--fp8-": "pass kwargs_handlers=[TERecipeKwargs(...)] or [AORecipeKwargs(...)] in the script",
    "--mpirun-hostfile": "start it with mpirun itself, as in: mpirun -n 4 python train.py",
    "--no-python": "what is started here is a Python script; use torchrun for another program",
    "--offload-optimizer-nvme-": "name the path in a DeepSpeed file, with --deepspeed-config, or in a DeepSpeedPlugin",
    "--offload-param-nvme-": "name the path in a DeepSpeed file, with --deepspeed-config, or in a DeepSpeedPlugin",
    "--rdzv-conf": "the rendezvous is set by main_process_ip, main_process_port and timeout",
    **dict.fromkeys(
        ("--env", "--vm", "--tpu-cluster", "--no-tpu-cluster", "--tpu-use-sudo"),
        TPU_POD,
    ),
}


def instead_of_flag(flag: str) -> str | None:
    return next((text for start, text in FLAGS.items() if flag.startswith(start)), None)
