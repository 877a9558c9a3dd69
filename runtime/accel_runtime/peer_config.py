"""A config file of Accelerate, put into our keys: what it says is used, refused by name or noted, never dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.nearest import nearest
from accel_runtime.unsupported import BETWEEN_LAYERS, FLAGS, WITHIN_LAYERS

# Their key -> ours, where the value means the same.
SAME = {
    "mixed_precision": "mixed_precision",
    "use_cpu": "cpu",
    "debug": "debug",
    "num_processes": "num_processes",
    "num_machines": "num_machines",
    "machine_rank": "machine_rank",
    "main_process_ip": "main_process_ip",
    "main_process_port": "main_process_port",
    "gpu_ids": "devices",
    "fsdp_config.fsdp_transformer_layer_cls_to_wrap": "wrap_layers",
    "fsdp_config.fsdp_min_num_params": "wrap_min_parameters",
    "fsdp_config.fsdp_offload_params": "cpu_offload",
    "fsdp_config.fsdp_activation_checkpointing": "activation_checkpointing",
    "deepspeed_config.zero_stage": "zero_stage",
    "deepspeed_config.deepspeed_config_file": "deepspeed_config",
    "deepspeed_config.gradient_accumulation_steps": "gradient_accumulation_steps",
    "deepspeed_config.gradient_clipping": "gradient_clipping",
    "dynamo_config.dynamo_backend": "dynamo_backend",
    "dynamo_backend": "dynamo_backend",
}

# Their words for one value -> ours; None says nothing.
WORDS: Mapping[str, Mapping[Any, Mapping[str, Any]]] = {
    "distributed_type": {
        "NO": {},
        False: {},  # what YAML makes of an unquoted NO
        **{f"MULTI_{kind}": {} for kind in ("GPU", "XPU", "NPU", "MLU", "MUSA", "HPU", "SDAA")},
        "MULTI_CPU": {"cpu": True},
        "FSDP": {"strategy": "fsdp"},
        "DEEPSPEED": {"strategy": "deepspeed"},
        "XLA": {},
        "TPU": {},
    },
    "fsdp_config.fsdp_sharding_strategy": {
        "FULL_SHARD": {"reshard_after_forward": True},
        "SHARD_GRAD_OP": {"reshard_after_forward": False},
        1: {"reshard_after_forward": True},
        2: {"reshard_after_forward": False},
    },
    "fsdp_config.fsdp_reshard_after_forward": {
        True: {"reshard_after_forward": True},
        False: {"reshard_after_forward": False},
        "FULL_SHARD": {"reshard_after_forward": True},
        "SHARD_GRAD_OP": {"reshard_after_forward": False},
    },
    "deepspeed_config.offload_optimizer_device": {"none": {}, "cpu": {"cpu_offload": True}},
    "deepspeed_config.offload_param_device": {"none": {}, "cpu": {"cpu_offload": True}},
}

# What chooses a way of training that does not exist here: going on without it would train something else.
REFUSED = {
    "megatron_lm_config": BETWEEN_LAYERS,
    "parallelism_config": WITHIN_LAYERS,
    "fp8_config": FLAGS["--fp8-"],
    "mpirun_config": FLAGS["--mpirun-hostfile"],
    **dict.fromkeys(("ec2_instance_type", "iam_role_name"), FLAGS["--aws-"]),
}

# Keys that hold for Accelerate's own launcher, or say what is always so here.
WITHOUT_MEANING = (
    "compute_environment",
    "main_training_function",
    "rdzv_backend",
    "same_network",
    "enable_cpu_affinity",
    "downcast_bf16",
    "tpu_env",
    "tpu_name",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "tpu_vm",
    "tpu_zone",
    "command_file",
    "commands",
)

_UNSAID: tuple[Any, ...] = (None, "", "all", "auto", "NO", -1)


@dataclass(frozen=True, slots=True)
class Translated:
    values: Mapping[str, Any]
    notes: tuple[str, ...]


def is_peer_config(content: Mapping[str, Any]) -> bool:
    return "distributed_type" in content or "compute_environment" in content


def translated(content: Mapping[str, Any], path: str) -> Translated:
    """Accelerate's values under our keys; a note names the keys that say nothing here."""
    values: dict[str, Any] = {}
    unused: list[str] = []
    for key, value in _flat(content):
        if key in REFUSED:
            raise ConfigError(f"{path}: {key}: {REFUSED[key]}; take it out, or train with Accelerate")
        if key in WORDS:
            values |= meaning(f"{path}: {key}", key, value)
        elif key in SAME:
            values |= {} if value in _UNSAID else {SAME[key]: _value(key, value)}
        elif key in WITHOUT_MEANING or "." in key:
            unused.append(key)
        else:
            raise ConfigError(
                f"{path}: unknown key {key!r}{nearest(key, [*SAME, *WITHOUT_MEANING, 'distributed_type'])}"
            )
    note = f"{path}: read as a file of Accelerate; without meaning here: {', '.join(unused)}"
    return Translated(values, (note,) if unused else ())


def _flat(content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Pairs with dotted keys, without the sections that hold nothing."""
    pairs: list[tuple[str, Any]] = []
    for key, value in content.items():
        if key not in REFUSED and isinstance(value, dict):
            pairs += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif value not in ({}, None):
            pairs.append((key, value))
    return pairs


def meaning(place: str, key: str, value: Any) -> Mapping[str, Any]:
    """What one of Accelerate's words says in our keys; a refusal begins with `place`, where it was written."""
    words = WORDS[key]
    if value in words:
        return words[value]
    known = ", ".join(str(word) for word in words if word is not False)
    raise ConfigError(f"{place} is {value!r}, expected one of {known}{nearest(str(value), map(str, words))}")


def _value(key: str, value: Any) -> Any:
    return str(value).lower() if key.endswith("dynamo_backend") else value
