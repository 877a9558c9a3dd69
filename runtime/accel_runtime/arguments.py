"""Arguments of Accelerate that this runtime does not take, each with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.unsupported import BETWEEN_LAYERS, WITHIN_LAYERS

INSTEAD = {
    "even_batches": "pass dataloader_config=DataLoaderConfiguration(even_batches=...)",
    "dispatch_batches": "pass dataloader_config=DataLoaderConfiguration(dispatch_batches=...)",
    "use_seedable_sampler": "pass dataloader_config=DataLoaderConfiguration(use_seedable_sampler=...)",
    "rng_types": "leave it out: samplers draw alike on all processes, and set_seed seeds the rest",
    "deepspeed_plugins": "make one Accelerator for each engine, and pass it one deepspeed_plugin",
    "megatron_lm_plugin": BETWEEN_LAYERS,
    "torch_tp_plugin": WITHIN_LAYERS,
    "parallelism_config": WITHIN_LAYERS,
}
KNOWN = (
    "device_placement",
    "split_batches",
    "mixed_precision",
    "gradient_accumulation_steps",
    "cpu",
    "device",
    "dataloader_config",
    "log_with",
    "project_dir",
    "project_config",
    "gradient_accumulation_plugin",
    "step_scheduler_with_optimizer",
    "kwargs_handlers",
    "deepspeed_plugin",
    "dynamo_backend",
    "dynamo_plugin",
    "autocast_forward",
    "schedule_skipped_steps",
    "fsdp_plugin",
    "matmul_precision",
)


def refuse_unsupported(arguments: Mapping[str, Any]) -> None:
    """Names the first argument that cannot be honoured; None means that it was not given."""
    for name, value in arguments.items():
        if value is None:
            continue
        if name in INSTEAD:
            raise ConfigError(f"Accelerator({name}=...): {INSTEAD[name]}")
        near = get_close_matches(name, KNOWN, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"Accelerator got an unexpected argument {name!r}{hint}")
