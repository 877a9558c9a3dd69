"""TensorBoard event files."""

from __future__ import annotations

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
        self.writer: Any = SummaryWriter(str(Path(logging_dir) / run_name), **kwargs)

    @property
    def tracker(self) -> Any:
        return self.writer

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        taken = (bool, float, int, str)
        known = {key: value if isinstance(value, taken) else str(value) for key, value in flat(values).items()}
        self.writer.add_hparams(known, {}, run_name=".")
        self.writer.flush()

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, value in values.items():
            value = plain(value)
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

    def finish(self) -> None:
        self.writer.close()
