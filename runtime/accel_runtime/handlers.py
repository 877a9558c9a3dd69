"""Settings of torch's own parts, handed to the Accelerator in `kwargs_handlers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, TypeVar, get_args

from accel_runtime.errors import ConfigError
from accel_runtime.keywords import KwargsHandler
from accel_runtime.profiling import ProfileKwargs
from accel_runtime.unsupported import refused_argument

CommunicationHook = Literal["no", "fp16", "bf16", "power_sgd", "batched_power_sgd"]


class DDPCommunicationHookType(StrEnum):
    """The communication hooks by name, for scripts that write `DDPCommunicationHookType.FP16`."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


@dataclass(frozen=True)
class AutocastKwargs(KwargsHandler):
    """For `torch.autocast`."""

    enabled: bool = True
    cache_enabled: bool = True


@dataclass(frozen=True)
class GradScalerKwargs(KwargsHandler):
    """For `torch.amp.GradScaler`."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass(frozen=True)
class DistributedDataParallelKwargs(KwargsHandler):
    """For `torch.nn.parallel.DistributedDataParallel`.

    `comm_hook` sends gradients in a smaller form: in half precision, or by PowerSGD with `comm_state_option`, whose
    messages `comm_wrapper` narrows further. `sync_batchnorm` makes batch norms use the statistics of all processes.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: CommunicationHook = "no"
    comm_wrapper: Literal["no", "fp16", "bf16"] = "no"
    comm_state_option: dict[str, Any] = field(default_factory=dict)
    sync_batchnorm: bool = False

    check_reduction: bool = False  # torch's own check is always on; accepted for scripts that pass it

    def __post_init__(self) -> None:
        _check_choice("comm_hook", self.comm_hook, get_args(CommunicationHook))
        _check_choice("comm_wrapper", self.comm_wrapper, ("no", "fp16", "bf16"))


@dataclass(frozen=True)
class AORecipeKwargs(KwargsHandler):
    """For fp8 through torchao: its `Float8LinearConfig`, and which layers to convert of those that can be."""

    config: Any = None
    module_filter_func: Callable[[Any, str], bool] | None = None
    pad_inner_dim: Any = None
    enable_fsdp_float8_all_gather: Any = None

    def __post_init__(self) -> None:
        _refuse(self)


@dataclass(frozen=True)
class TERecipeKwargs(KwargsHandler):
    """For fp8 through Transformer Engine, which passing this chooses: its `DelayedScaling`."""

    margin: int = 0
    fp8_format: Literal["HYBRID", "E4M3"] = "HYBRID"
    amax_history_len: int = 1024
    amax_compute_algo: Literal["max", "most_recent"] = "most_recent"
    use_autocast_during_eval: Any = None
    interval: Any = None
    override_linear_precision: Any = None
    use_mxfp8_block_scaling: Any = None

    def __post_init__(self) -> None:
        _refuse(self)


@dataclass(frozen=True)
class InitProcessGroupKwargs(KwargsHandler):
    """For `torch.distributed.init_process_group`; None leaves the choice to the device."""

    backend: str | None = None
    init_method: str | None = None
    timeout: timedelta | None = None


Handler = (
    AutocastKwargs
    | GradScalerKwargs
    | AORecipeKwargs
    | TERecipeKwargs
    | DistributedDataParallelKwargs
    | InitProcessGroupKwargs
    | ProfileKwargs
)
Kind = TypeVar("Kind")


def pick(handlers: Iterable[object], kind: type[Kind], default: Kind) -> Kind:
    """The handler of this kind, or the default."""
    return next((handler for handler in handlers if isinstance(handler, kind)), default)


def chosen(handler: Any) -> dict[str, Any]:
    """The settings that differ from the default; the rest is left to torch, whose own defaults may move on."""
    return {one.name: value for one in fields(handler) if (value := getattr(handler, one.name)) != one.default}


def check_handlers(handlers: Iterable[object]) -> tuple[Handler, ...]:
    """Refuses what is no handler, and two of one kind."""
    checked: list[Handler] = []
    for handler in handlers:
        if not isinstance(handler, Handler):
            raise ConfigError(f"kwargs_handlers got {handler!r}, which is not one of {_names()}")
        if any(type(handler) is type(other) for other in checked):
            raise ConfigError(f"kwargs_handlers got two of {type(handler).__name__}; keep one")
        checked.append(handler)
    return tuple(checked)


def _refuse(settings: KwargsHandler) -> None:
    if text := refused_argument(type(settings).__name__, settings.to_dict()):
        raise ConfigError(text)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}")


def _names() -> str:
    return ", ".join(kind.__name__ for kind in get_args(Handler))
