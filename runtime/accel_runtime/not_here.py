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

SHARDING = "prepare() shards any DataLoader, and what it returns has total_batch_size, set_epoch and the loader's own attributes"

# By the name that is imported.
NAMES = {
    "AcceleratorState": "ask accelerator.state, or make a PartialState",
    "GradientState": "ask accelerator.gradient_state",
    "prepare_pippy": "pipeline parallelism is not here; use torch.distributed.pipelining, or dispatch_model with a device_map",
    **dict.fromkeys(
        ("BatchSamplerShard", "IterableDatasetShard", "DataLoaderDispatcher", "SkipBatchSampler", "SkipDataLoader"),
        SHARDING,
    ),
    "SeedableRandomSampler": "pass dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)",
    **dict.fromkeys(("MegatronLMPlugin", "MegatronLMDummyDataLoader"), BETWEEN_LAYERS),
    **dict.fromkeys(("ParallelismConfig", "TorchTensorParallelPlugin", "TorchContextParallelConfig"), WITHIN_LAYERS),
    "synchronize_rng_states": "leave it out: samplers draw alike on all processes, and set_seed seeds the rest",
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
