"""What is installed, and what this machine has."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch


def _installed(package: str) -> Callable[[], bool]:
    def is_installed() -> bool:
        """Whether the package of this name is installed."""
        return importlib.util.find_spec(package) is not None

    return functools.cache(is_installed)


is_deepspeed_available = _installed("deepspeed")
is_mlflow_available = _installed("mlflow")
is_rich_available = _installed("rich")
is_safetensors_available = _installed("safetensors")
is_tensorboard_available = _installed("tensorboard")
is_torch_xla_available = _installed("torch_xla")
is_transformers_available = _installed("transformers")
is_wandb_available = _installed("wandb")


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def is_mps_available(min_version: str = "1.12") -> bool:
    """`min_version` is that of torch from which scripts want it; this runtime needs a later one anyway."""
    return torch.backends.mps.is_available()


def is_xpu_available(check_device: bool = False) -> bool:
    return torch.xpu.is_available()


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Whether this machine computes in bfloat16; every CPU does."""
    return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else True
