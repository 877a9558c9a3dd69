"""The code that is written into scripts: every name here exists in the runtime, and a test keeps it so."""

from __future__ import annotations

from accel_migrate.rule import Context

# Attributes and methods of the Accelerator that rewritten scripts may use.
EMITTED = (
    "backward",
    "clip_grad_norm_",
    "clip_grad_value_",
    "device",
    "gather_for_metrics",
    "get_state_dict",
    "is_local_main_process",
    "is_main_process",
    "num_processes",
    "prepare",
    "print",
    "save",
    "unwrap_model",
    "wait_for_everyone",
)


def accelerator_name(context: Context) -> str:
    """How the place that makes the Accelerator names it."""
    return "self.accelerator" if context.training.home.is_class else "accelerator"


def accelerator_statement(context: Context) -> str:
    """`accelerator = Accelerator(...)` with what the script's own options ask for."""
    arguments = []
    if context.training.start.cpu is not None:
        arguments.append(f"cpu={context.training.start.cpu}")
    if context.settings.mixed_precision is not None:
        arguments.append(f'mixed_precision="{context.settings.mixed_precision}"')
    return f"{accelerator_name(context)} = Accelerator({', '.join(arguments)})"
