"""What a script may say about DeepSpeed: `Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from accel_runtime.errors import ConfigError
from accel_runtime.strategies.deepspeed_config import written_in
from accel_runtime.unsupported import refused_argument

Place = Literal["none", "cpu", "nvme"]


@dataclass(frozen=True)
class DeepSpeedPlugin:
    """For DeepSpeed's engine; None leaves a choice to flags, config files and `hf_ds_config`, a JSON file or a dict.

    `offload_optimizer_device` and `offload_param_device` say where the optimizer's state and the parameters rest; disks
    need a path. Accepted for scripts that pass them: `zero3_save_16bit_model`, for weights are always gathered for a
    file, and `is_train_batch_min`, for the first loader prepared tells the batch size.
    """

    hf_ds_config: str | Path | Mapping[str, Any] | None = None
    gradient_accumulation_steps: int | Literal["auto"] | None = None
    gradient_clipping: float | Literal["auto"] | None = None
    zero_stage: int | None = None
    offload_optimizer_device: Place | None = None
    offload_param_device: Place | None = None
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_save_16bit_model: bool | None = None
    zero3_init_flag: bool | None = None
    is_train_batch_min: bool = True
    transformer_moe_cls_names: Any = None
    enable_msamp: Any = None
    msamp_opt_level: Any = None

    def __post_init__(self) -> None:
        if text := refused_argument("DeepSpeedPlugin", vars(self)):
            raise ConfigError(text)
        for name in ("offload_optimizer", "offload_param"):
            place, path = getattr(self, f"{name}_device"), getattr(self, f"{name}_nvme_path")
            if place not in (None, *get_args(Place)):
                raise ConfigError(f"{name}_device={place!r} is not one of {', '.join(get_args(Place))}")
            if place == "nvme" and path is None:
                raise ConfigError(f"{name}_device='nvme' needs the folder of that disk in {name}_nvme_path")
        if self.zero3_init_flag:
            raise ConfigError(
                "zero3_init_flag=True would build models in shards, which is not supported here; build the model under "
                "`deepspeed.zero.Init()` yourself, or leave it out"
            )

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """What `hf_ds_config` says, for scripts that look into it; changing it changes nothing."""
        return copy.deepcopy(dict(written_in(self.hf_ds_config).config))

    def options(self) -> dict[str, Any]:
        """What it says in the keys of a config file, as the script's own word; None where it says nothing."""
        said = {
            "strategy": "deepspeed",
            "zero_stage": self.zero_stage,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "gradient_clipping": self.gradient_clipping,
        }
        return {key: None if value == "auto" else value for key, value in said.items()}
