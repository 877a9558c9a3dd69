"""What scripts for Accelerate import to configure it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, EnumMeta, StrEnum
from typing import Any

import torch
from torch.nn import Module

from accel_runtime.accumulation import GradientAccumulationPlugin
from accel_runtime.configuration import DataLoaderConfiguration, ProjectConfiguration, TorchDynamoPlugin
from accel_runtime.errors import ConfigError
from accel_runtime.handlers import (
    AORecipeKwargs,
    AutocastKwargs,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    TERecipeKwargs,
)
from accel_runtime.keywords import KwargsHandler
from accel_runtime.large.sizes import CustomDtype
from accel_runtime.processes import DistributedType
from accel_runtime.profiling import ProfileKwargs
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin
from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin
from accel_runtime.tracking import LoggerType
from accel_runtime.unsupported import absent


class EnumWithContains(EnumMeta):
    """`"bf16" in PrecisionType`, as Accelerate writes it."""

    def __contains__(cls, item: object) -> bool:
        return item in [member.value for member in cls] or isinstance(item, cls)  # type: ignore[var-annotated]


class BaseEnum(Enum, metaclass=EnumWithContains):
    """An enum that shows its value, and lists them."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> list[Any]:
        return [member.value for member in cls]


class PrecisionType(str, BaseEnum):
    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(BaseEnum):
    """Generators by name, for `synchronize_rng_states`."""

    TORCH = "torch"
    CUDA = "cuda"
    MLU = "mlu"
    SDAA = "sdaa"
    MUSA = "musa"
    NPU = "npu"
    XLA = "xla"
    XPU = "xpu"
    HPU = "hpu"
    NEURON = "neuron"
    GENERATOR = "generator"


class ComputeEnvironment(StrEnum):
    LOCAL_MACHINE = "LOCAL_MACHINE"
    AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER"


class SageMakerDistributedType(StrEnum):
    NO = "NO"
    DATA_PARALLEL = "DATA_PARALLEL"
    MODEL_PARALLEL = "MODEL_PARALLEL"


class FP8BackendType(StrEnum):
    TE = "TE"
    AO = "AO"


class DynamoBackend(str, BaseEnum):
    """Backends of torch.compile, by Accelerate's names."""

    NO = "NO"
    EAGER = "EAGER"
    AOT_EAGER = "AOT_EAGER"
    INDUCTOR = "INDUCTOR"
    AOT_TS_NVFUSER = "AOT_TS_NVFUSER"
    NVPRIMS_NVFUSER = "NVPRIMS_NVFUSER"
    CUDAGRAPHS = "CUDAGRAPHS"
    OFI = "OFI"
    FX2TRT = "FX2TRT"
    ONNXRT = "ONNXRT"
    TENSORRT = "TENSORRT"
    AOT_TORCHXLA_TRACE_ONCE = "AOT_TORCHXLA_TRACE_ONCE"
    TORHCHXLA_TRACE_ONCE = "TORHCHXLA_TRACE_ONCE"
    TVM = "TVM"
    HPU_BACKEND = "HPU_BACKEND"
    OPENXLA = "OPENXLA"
    IPEX = "IPEX"


@dataclass
class TensorInformation:
    """A tensor's shape and type, without its numbers."""

    shape: torch.Size
    dtype: torch.dtype


class FP8RecipeKwargs:
    """The older name for a recipe: makes one of Transformer Engine or torchao, as `backend` says."""

    def __new__(cls, backend: str = "TE", **settings: Any) -> Any:
        recipes: dict[str, Any] = {"TE": TERecipeKwargs, "AO": AORecipeKwargs}
        if backend.upper() not in recipes:
            raise ConfigError(f"FP8RecipeKwargs(backend={backend!r}): fp8 runs here through TE or AO; pass one of them")
        return recipes[backend.upper()](**settings)


def get_module_class_from_name(module: Module, name: str) -> type[Module] | None:
    """The class of this name among the layers of a model."""
    return next((type(layer) for layer in module.modules() if type(layer).__name__ == name), None)


__all__ = [
    "AORecipeKwargs",
    "AutocastKwargs",
    "BaseEnum",
    "ComputeEnvironment",
    "CustomDtype",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DeepSpeedPlugin",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "DynamoBackend",
    "EnumWithContains",
    "FP8BackendType",
    "FP8RecipeKwargs",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "SageMakerDistributedType",
    "TERecipeKwargs",
    "TensorInformation",
    "TorchDynamoPlugin",
    "get_module_class_from_name",
]

__getattr__ = absent(__name__)
