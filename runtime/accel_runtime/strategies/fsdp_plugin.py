"""What a script may say about FSDP, and what is settled when flags and precision are asked too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.nn import Module

from accel_runtime.errors import ConfigError
from accel_runtime.options import Options

if TYPE_CHECKING:
    # Every script that makes an Accelerator comes past here, and this takes a second to import.
    from torch.distributed.fsdp import MixedPrecisionPolicy

StateDictType = Literal["SHARDED_STATE_DICT", "FULL_STATE_DICT"]
WrapPolicy = Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]
NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}
RESHARDS = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}


@dataclass(frozen=True, kw_only=True)
class FullyShardedDataParallelPlugin:
    """For `torch.distributed.fsdp.fully_shard`; None leaves a choice to the flags of the launcher, then to torch.

    Blocks are found, or named by class in `transformer_cls_names_to_wrap`, or are all modules of at least
    `min_num_params`, or those for which `auto_wrap_policy` is true. `param_init_fn` initialises one module of a model
    that was built on the meta device. With `state_dict_type="FULL_STATE_DICT"` a checkpoint has each model in one file.
    """

    auto_wrap_policy: Callable[..., bool] | str | None = None
    transformer_cls_names_to_wrap: Sequence[str] | None = None
    min_num_params: int | None = None
    reshard_after_forward: bool | int | None = None
    cpu_offload: bool | None = None
    activation_checkpointing: bool | None = None
    mixed_precision_policy: MixedPrecisionPolicy | None = None
    state_dict_type: str = "SHARDED_STATE_DICT"
    param_init_fn: Callable[[Module], Any] | None = None
    sharding_strategy: str | None = None
    fsdp_version: int = 2
    ignored_modules: Any = None
    # Asked for by scripts that were written for FSDP1.
    backward_prefetch: Any = None
    forward_prefetch: Any = None
    limit_all_gathers: Any = None
    use_orig_params: Any = None
    sync_module_states: Any = None
    cpu_ram_efficient_loading: Any = None
    state_dict_config: Any = None
    optim_state_dict_config: Any = None

    def __post_init__(self) -> None:
        if self.fsdp_version != 2:
            raise ConfigError(f"fsdp_version={self.fsdp_version}: this runtime has FSDP2 only; leave it out")
        if self.ignored_modules:
            raise ConfigError("ignored_modules would train apart on each process; freeze them, or leave it out")
        if self.sharding_strategy is not None and self.sharding_strategy not in RESHARDS:
            raise ConfigError(
                f"sharding_strategy={self.sharding_strategy!r} is not one of {', '.join(RESHARDS)}; whole copies of "
                "the model on each process are strategy ddp"
            )
        _check("state_dict_type", self.state_dict_type, get_args(StateDictType))
        if isinstance(self.auto_wrap_policy, str):
            _check("auto_wrap_policy", self.auto_wrap_policy.upper(), get_args(WrapPolicy))
        self._say_what_is_always_so()

    def _say_what_is_always_so(self) -> None:
        names = ("backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params", "sync_module_states")
        gathered = ("cpu_ram_efficient_loading", "state_dict_config", "optim_state_dict_config")
        given = [name for name in (*names, *gathered) if getattr(self, name) is not None]
        if given:
            warnings.warn(
                f"{', '.join(given)} of FullyShardedDataParallelPlugin has no effect: FSDP2 prefetches, limits and keeps "
                "original parameters by itself, and whole weights always come from process 0 and go to its CPU",
                stacklevel=4,
            )


@dataclass(frozen=True, slots=True)
class Sharding:
    """What is settled for a run."""

    layers: tuple[str, ...] | None
    min_parameters: int | None
    policy: Callable[..., bool] | None
    finds_blocks: bool  # where none of the above says what a block is
    reshard: bool | int | None
    offloads: bool
    recomputes: bool
    precision: MixedPrecisionPolicy | None
    narrow: torch.dtype | None  # in which the run computes, where that is narrower than its weights
    whole_checkpoints: bool
    initialise: Callable[[Module], Any] | None


def settled(plugin: FullyShardedDataParallelPlugin, options: Options) -> Sharding:
    """The script's word, else the launcher's, else what torch does."""
    layers, least = plugin.transformer_cls_names_to_wrap, plugin.min_num_params
    named = plugin.auto_wrap_policy.upper() if isinstance(plugin.auto_wrap_policy, str) else None
    reshard = _first(plugin.reshard_after_forward, RESHARDS.get(plugin.sharding_strategy or ""))
    if layers is None and least is None and plugin.auto_wrap_policy is None:
        layers, least = options.wrap_layers, options.wrap_min_parameters
    return Sharding(
        layers=None if layers is None else (layers,) if isinstance(layers, str) else tuple(layers),
        min_parameters=least,
        policy=plugin.auto_wrap_policy if callable(plugin.auto_wrap_policy) else None,
        finds_blocks=named != "NO_WRAP",
        reshard=_first(reshard, options.reshard_after_forward),
        offloads=bool(_first(plugin.cpu_offload, options.cpu_offload)),
        recomputes=bool(_first(plugin.activation_checkpointing, options.activation_checkpointing)),
        precision=plugin.mixed_precision_policy,
        narrow=NARROW.get(options.mixed_precision),
        whole_checkpoints=plugin.state_dict_type == "FULL_STATE_DICT",
        initialise=plugin.param_init_fn,
    )


def _first(said: Any, otherwise: Any) -> Any:
    return otherwise if said is None else said


def _check(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}")
