"""All questions of Accelerate about what is installed and which devices are there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache

import torch

from accel_runtime.availability import (
    is_bf16_available,
    is_cuda_available,
    is_mps_available,
    is_rich_available,
    is_safetensors_available,
    is_xpu_available,
)

# The question's name, without is_ and _available -> what is imported.
PACKAGES = {
    "4bit_bnb": "bitsandbytes",
    "8bit_bnb": "bitsandbytes",
    "aim": "aim",
    "amdsmi": "amdsmi",
    "bitsandbytes_multi_backend": "bitsandbytes",
    "bnb": "bitsandbytes",
    "boto3": "boto3",
    "clearml": "clearml",
    "comet_ml": "comet_ml",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "dvclive": "dvclive",
    "lomo": "lomo_optim",
    "matplotlib": "matplotlib",
    "mlflow": "mlflow",
    "msamp": "msamp",
    "numpy": "numpy",
    "pandas": "pandas",
    "peft": "peft",
    "pynvml": "pynvml",
    "pytest": "pytest",
    "sagemaker": "sagemaker",
    "schedulefree": "schedulefree",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "timm": "timm",
    "torch_xla": "torch_xla",
    "torchao": "torchao",
    "torchdata": "torchdata",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "trackio": "trackio",
    "transformer_engine": "transformer_engine",
    "transformers": "transformers",
    "triton": "triton",
    "wandb": "wandb",
}
# Devices of other makers, whose packages put a module into torch.
DEVICES = ("hpu", "mlu", "musa", "neuron", "npu", "sdaa")
# Engines that are not here, whatever is installed.
NEVER = ("megatron_lm", "pippy")


@cache
def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _asks_for_package(package: str) -> Callable[..., bool]:
    return lambda *_, **__: _installed(package)


def _asks_for_device(device: str) -> Callable[..., bool]:
    return lambda *_, **__: bool(hasattr(torch, device) and getattr(torch, device).is_available())


def is_fp16_available() -> bool:
    return True


def is_fp8_available() -> bool:
    return _installed("transformer_engine") or _installed("torchao")


def is_torch_distributed_available() -> bool:
    return torch.distributed.is_available()


_QUESTIONS: dict[str, Callable[..., bool]] = {
    **{f"is_{name}_available": _asks_for_package(package) for name, package in PACKAGES.items()},
    **{f"is_{name}_available": _asks_for_device(name) for name in DEVICES},
    **{f"is_{name}_available": lambda *_, **__: False for name in NEVER},
}

__all__ = [
    "is_bf16_available",
    "is_cuda_available",
    "is_fp8_available",
    "is_fp16_available",
    "is_mps_available",
    "is_rich_available",
    "is_safetensors_available",
    "is_torch_distributed_available",
    "is_xpu_available",
    *_QUESTIONS,
]

globals().update(_QUESTIONS)
