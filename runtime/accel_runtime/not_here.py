"""What Accelerate has and this runtime has not, with what to use: said wherever somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WITHIN_LAYERS = (
    "tensor, sequence and context parallelism are not here; for a model that is too large for one device use strategy "
    "fsdp or deepspeed, for layers that are use torch.distributed.tensor.parallel"
)
BETWEEN_LAYERS = (
    "Megatron-LM, with its tensor and pipeline parallelism, is not here; use strategy fsdp or deepspeed, or train with "
    "Megatron's own scripts"
)

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

# By the name that is imported.
NAMES = {
    "prepare_pippy": "pipeline parallelism is not here; use torch.distributed.pipelining, or dispatch_model with a device_map",
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
        ),
        OWN_LAUNCHER,
    ),
    **dict.fromkeys(
        ("AimTracker", "ClearMLTracker", "CometMLTracker", "DVCLiveTracker", "SwanLabTracker", "TrackioTracker"),
        TRACKER,
    ),
    "check_cuda_p2p_ib_support": "leave it out: NCCL finds out by itself which way GPUs can speak to each other",
    "set_numa_affinity": "start the processes under numactl, or with torchrun --numa-binding",
    "install_xla": "pip install torch_xla, in the version of the installed torch",
    "ThreadLocalSharedDict": "ask PartialState: it holds what one process knows",
    "DataLoaderAdapter": "isinstance(loader, DataLoaderShard) tells a prepared loader",
    "MpDeviceLoaderWrapper": "prepare() feeds XLA devices by itself",
}


def absent(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: what to use instead of a name that Accelerate has there."""

    def missing(name: str) -> Any:
        if name in NAMES:
            raise ImportError(f"{module} has no {name}: {NAMES[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


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
        "a TPU pod is not set up from here; start the script on each of its machines",
    ),
}


def instead_of_flag(flag: str) -> str | None:
    return next((text for start, text in FLAGS.items() if flag.startswith(start)), None)
