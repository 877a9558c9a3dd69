"""Gradients sent in a smaller form: torch's communication hooks by name."""

from __future__ import annotations

from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from accel_runtime.handlers import DistributedDataParallelKwargs

HOOKS: dict[str, Any] = {
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "power_sgd": powerSGD_hook.powerSGD_hook,
    "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook,
}
WRAPPERS: dict[str, Any] = {
    "fp16": default_hooks.fp16_compress_wrapper,
    "bf16": default_hooks.bf16_compress_wrapper,
}


def register_hook(model: DistributedDataParallel, settings: DistributedDataParallelKwargs) -> None:
    """Gives the model the hook that the settings name, if they name one."""
    if settings.comm_hook == "no":
        return
    hook = HOOKS[settings.comm_hook]
    if settings.comm_wrapper != "no":
        hook = WRAPPERS[settings.comm_wrapper](hook)
    state = None
    if "power_sgd" in settings.comm_hook:
        state = powerSGD_hook.PowerSGDState(process_group=None, **settings.comm_state_option)
    model.register_comm_hook(state=state, hook=hook)
