"""Combinations of strategy, precision and device that cannot work, each with the reason and the way out."""

from __future__ import annotations

from dataclasses import dataclass

from accel_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Names that are not given stand for all."""

    reason: str
    strategies: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def fits(self, strategy: str, precision: str, device: str) -> bool:
        asked = ((strategy, self.strategies), (precision, self.precisions), (device, self.devices))
        return all(name in names for name, names in asked if names)


MANY = ("ddp", "fsdp", "deepspeed")

REFUSALS = (
    Refusal(
        "no backend of torch.distributed carries tensors of mps; start one process, or pass cpu=True",
        strategies=MANY,
        devices=("mps",),
    ),
    Refusal(
        "XLA's processes train through its own reduction of gradients; use strategy ddp",
        strategies=("fsdp", "deepspeed"),
        devices=("xla",),
    ),
    Refusal(
        "TPUs compute in bfloat16, and there is no loss scaling for them here; use bf16",
        precisions=("fp16",),
        devices=("tpu", "xla"),
    ),
    Refusal("DeepSpeed has no engine for TPUs; use ddp or fsdp", strategies=("deepspeed",), devices=("tpu",)),
    Refusal(
        "DeepSpeed's engine does not train in fp16 on CPUs; use bf16",
        strategies=("deepspeed",),
        precisions=("fp16",),
        devices=("cpu",),
    ),
    Refusal(
        "it needs a GPU that multiplies in 8 bits (NVIDIA from compute capability 8.9, AMD MI300); use bf16, or "
        "fp8-emulated to try it out slowly",
        precisions=("fp8",),
        devices=("cpu", "xpu", "npu", "hpu", "mtia", "mlu", "musa", "sdaa", "mps", "tpu", "xla"),
    ),
    Refusal("torchao's layers are not for XLA; use bf16", precisions=("fp8-emulated",), devices=("tpu", "xla")),
)


def refusal(strategy: str, precision: str, device: str) -> str | None:
    """Why these do not go together; None when nothing speaks against it."""
    return next((one.reason for one in REFUSALS if one.fits(strategy, precision, device)), None)


def check_combination(strategy: str, precision: str, device: str) -> None:
    if reason := refusal(strategy, precision, device):
        raise ConfigError(f"strategy {strategy} with mixed_precision={precision!r} on {device} is refused: {reason}")
