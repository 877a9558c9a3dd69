"""All questions of Accelerate about what is installed and which devices are there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from accel_runtime.availability import (
    is_bf16_available,
    is_cuda_available,
    is_mps_available,
    is_rich_available,
    is_safetensors_available,
    is_xpu_available,
)
from accel_runtime.unsupported import absent

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
    "import_timer": "import_timer",
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


def is_rocm_available() -> bool:
    return torch.cuda.is_available() and torch.version.hip is not None


def is_xccl_available() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_xccl_available()


def is_weights_only_available() -> bool:
    return True


def is_habana_gaudi1() -> bool:
    return False


def is_torchdata_stateful_dataloader_available() -> bool:
    return _installed("torchdata") and importlib.util.find_spec("torchdata.stateful_dataloader") is not None


def is_transformer_engine_mxfp8_available() -> bool:
    if not _installed("transformer_engine"):
        return False
    from importlib import import_module

    return bool(import_module("transformer_engine.pytorch.fp8").check_mxfp8_support()[0])


def deepspeed_required(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that says so when it is called without DeepSpeed."""
    return _requiring("deepspeed", func)


def torchao_required(func: Callable[..., Any]) -> Callable[..., Any]:
    return _requiring("torchao", func)


def _requiring(package: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _installed(package):
            raise ImportError(f"{function.__name__} needs {package}: pip install {package}")
        return function(*args, **kwargs)

    return call


_QUESTIONS: dict[str, Callable[..., bool]] = {
    **{f"is_{name}_available": _asks_for_package(package) for name, package in PACKAGES.items()},
    **{f"is_{name}_available": _asks_for_device(name) for name in DEVICES},
    **{f"is_{name}_available": lambda *_, **__: False for name in NEVER},
}

__all__ = [
    "deepspeed_required",
    "is_bf16_available",
    "is_cuda_available",
    "is_fp8_available",
    "is_fp16_available",
    "is_habana_gaudi1",
    "is_mps_available",
    "is_rich_available",
    "is_rocm_available",
    "is_safetensors_available",
    "is_torch_distributed_available",
    "is_torchdata_stateful_dataloader_available",
    "is_transformer_engine_mxfp8_available",
    "is_weights_only_available",
    "is_xccl_available",
    "is_xpu_available",
    "torchao_required",
    *_QUESTIONS,
]

globals().update(_QUESTIONS)

__getattr__ = absent(__name__)
