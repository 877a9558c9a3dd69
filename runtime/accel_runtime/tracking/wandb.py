"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.tracking import GeneralTracker


class WandBTracker(GeneralTracker):
    name = "wandb"

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError("log_with='wandb' needs the package wandb; pip install wandb") from None
        self.run = wandb.init(project=run_name, **kwargs)

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log(dict(values), step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()
