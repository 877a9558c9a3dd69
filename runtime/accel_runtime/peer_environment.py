"""Variables of Accelerate's launcher, put into our keys: what they say is used, refused by name or noted, never dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.options import Layer
from accel_runtime.unsupported import BETWEEN_LAYERS, WITHIN_LAYERS

PREFIX = "ACCELERATE_"

# Their variable -> our key, where the value means the same.
ALWAYS = {
    "ACCELERATE_MIXED_PRECISION": "mixed_precision",
    "ACCELERATE_USE_CPU": "cpu",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps",
    "ACCELERATE_DYNAMO_BACKEND": "dynamo_backend",
    "ACCELERATE_DEBUG_MODE": "debug",
}
# What chooses a strategy, and what its own variables say then.
STRATEGIES = {
    "ACCELERATE_USE_FSDP": (
        "fsdp",
        {
            "FSDP_TRANSFORMER_CLS_TO_WRAP": "wrap_layers",
            "FSDP_MIN_NUM_PARAMS": "wrap_min_parameters",
            "FSDP_OFFLOAD_PARAMS": "cpu_offload",
            "FSDP_ACTIVATION_CHECKPOINTING": "activation_checkpointing",
            "FSDP_RESHARD_AFTER_FORWARD": "reshard_after_forward",
        },
    ),
    "ACCELERATE_USE_DEEPSPEED": (
        "deepspeed",
        {
            "ACCELERATE_DEEPSPEED_ZERO_STAGE": "zero_stage",
            "ACCELERATE_DEEPSPEED_CONFIG_FILE": "deepspeed_config",
            "ACCELERATE_GRADIENT_CLIPPING": "gradient_clipping",
            "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu_offload",
            "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "cpu_offload",
        },
    ),
}
REFUSED = {
    "ACCELERATE_USE_MEGATRON_LM": BETWEEN_LAYERS,
    "ACCELERATE_USE_PARALLELISM_CONFIG": WITHIN_LAYERS,
    "ACCELERATE_TORCH_DEVICE": "pass Accelerator(device=...), or cpu=True",
}
# Of its launcher, its tests and its large models: they choose nothing about a training.
WITHOUT_MEANING = ("CPU_AFFINITY", "LOG_LEVEL", "ENABLE_RICH", "IN_TPU_POD", "BYPASS_DEVICE_MAP", "CONFIG_DS_FIELDS")

_UNSAID = ("", "0", "false", "no", "none", "auto", "default", "-1")
_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("true", "yes", "y", "on", "cpu", "full_shard"), True),
    **dict.fromkeys(("false", "n", "off", "none", "shard_grad_op"), False),
}


def peer_layer(environ: Mapping[str, str]) -> Layer:
    """What Accelerate's variables say, for runs that its launcher has started; below our own variables."""
    for name, instead in REFUSED.items():
        if _is_said(environ.get(name, "")):
            raise ConfigError(f"{name}={environ[name]} in the environment: {instead}; or unset it")
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for names, strategy in _groups(environ):
        values |= {"strategy": strategy} if strategy else {}
        for name, key in names.items():
            if (said := environ.get(name, "")) and _means(key, said):
                values[key], places[key] = _value(key, said), name
    return Layer("environment of Accelerate", values, lambda key: f"{places.get(key, key)} in the environment")


def unread_of_peer(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable of Accelerate that says something and is not read here."""
    read = {name for names, _ in _groups(environ) for name in names} | STRATEGIES.keys() | REFUSED.keys()
    harmless = {PREFIX + name for name in WITHOUT_MEANING}
    unread = sorted(
        name
        for name, said in environ.items()
        if name.startswith(PREFIX) and name not in read | harmless and _is_said(said)
    )
    return [f"{name}={environ[name]} in the environment is not read here" for name in unread]


def _groups(environ: Mapping[str, str]) -> list[tuple[Mapping[str, str], str | None]]:
    chosen = [
        (names, strategy) for switch, (strategy, names) in STRATEGIES.items() if _is_said(environ.get(switch, ""))
    ]
    return [(ALWAYS, None), *chosen]


def _is_said(value: str) -> bool:
    return value.lower() not in _UNSAID


def _means(key: str, said: str) -> bool:
    """Whether a value says something about its key; "no" is a precision, "0" a stage."""
    return said.lower() not in ("none", "auto") and (
        key not in ("wrap_min_parameters", "cpu_offload") or _is_said(said)
    )


def _value(key: str, said: str) -> Any:
    if key == "dynamo_backend":
        return said.lower()
    return _WORDS.get(said.lower(), said) if key in _SWITCHES else said


_SWITCHES = ("cpu", "debug", "cpu_offload", "activation_checkpointing", "reshard_after_forward")
