"""Ways to divide one model that are not here, with what to use: said wherever somebody asks for them."""

from __future__ import annotations

WITHIN_LAYERS = (
    "tensor, sequence and context parallelism are not here; for a model that is too large for one device use strategy "
    "fsdp or deepspeed, for layers that are use torch.distributed.tensor.parallel"
)
BETWEEN_LAYERS = (
    "Megatron-LM, with its tensor and pipeline parallelism, is not here; use strategy fsdp or deepspeed, or train with "
    "Megatron's own scripts"
)

# By the beginning of a flag.
FLAGS = {
    "--use-megatron-lm": BETWEEN_LAYERS,
    "--megatron-lm-": BETWEEN_LAYERS,
    "--use-parallelism-config": WITHIN_LAYERS,
    "--parallelism-config-": WITHIN_LAYERS,
}


def instead_of_flag(flag: str) -> str | None:
    return next((text for start, text in FLAGS.items() if flag.startswith(start)), None)
