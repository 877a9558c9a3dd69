"""TensorBoard event files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.tracking import GeneralTracker, flat, plain


class TensorBoardTracker(GeneralTracker):
    name = "tensorboard"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: Path, **kwargs: Any) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("log_with='tensorboard' needs the package tensorboard; pip install tensorboard") from None
        self._open = functools.partial(SummaryWriter, str(Path(logging_dir) / run_name), **kwargs)
        self.writer: Any = self._open()
        self._last: int | None = None

    @property
    def tracker(self) -> Any:
        return self.writer

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        taken = (bool, float, int, str)
        known = {key: value if isinstance(value, taken) else str(value) for key, value in flat(values).items()}
        self.writer.add_hparams(known, {}, run_name=".")
        self.writer.flush()

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._last = self._last if step is None else step
        for key, value in values.items():
            value = plain(value)
            if value is None:
                continue  # a figure that a script does not have at this step
            if isinstance(value, str):
                self.writer.add_text(key, value, global_step=step, **kwargs)
            elif isinstance(value, Mapping):
                self.writer.add_scalars(key, value, global_step=step, **kwargs)
            else:
                self.writer.add_scalar(key, value, global_step=step, **kwargs)
        self.writer.flush()

    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, images in values.items():
            self.writer.add_images(key, images, global_step=step, **kwargs)

    def state(self) -> dict[str, Any]:
        return {"step": self._last}

    def resume(self, state: dict[str, Any]) -> None:
        """Steps after the checkpoint are hidden by those that are written now."""
        self.writer.close()
        self._last = state["step"]
        self.writer = self._open(purge_step=0 if self._last is None else self._last + 1)

    def finish(self) -> None:
        self.writer.close()
