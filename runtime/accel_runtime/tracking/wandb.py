"""Weights & Biases."""

from __future__ import annotations

import functools
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
        self._open = functools.partial(wandb.init, project=run_name, **kwargs)
        self.run = self._open()

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log(dict(values), step=step, **kwargs)

    def state(self) -> dict[str, Any]:
        return {"id": self.run.id}

    def resume(self, state: dict[str, Any]) -> None:
        if state["id"] != self.run.id:
            self.run.finish()
            self.run = self._open(id=state["id"], resume="must")

    def finish(self) -> None:
        self.run.finish()
