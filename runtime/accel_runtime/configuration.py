"""Groups of settings that an Accelerator takes as one argument."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accel_runtime.errors import ConfigError
from accel_runtime.keywords import KwargsHandler
from accel_runtime.unsupported import refused_argument


@dataclass(slots=True)
class DataLoaderConfiguration(KwargsHandler):
    """How prepared loaders shard their data.

    `split_batches`: one batch of the script is divided between the processes, instead of one batch for each.
    `dispatch_batches`: process 0 reads for all. `even_batches`: the last round is filled up with samples from the
    beginning. `use_seedable_sampler`: shuffles depend on `data_seed` and the epoch alone. `non_blocking`: copies to
    the device overlap with computation, which needs pinned memory. `use_stateful_dataloader`: after `load_state`, loaders
    go on in the middle of the epoch by themselves.
    """

    split_batches: bool | None = None
    dispatch_batches: bool = False
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False

    def __post_init__(self) -> None:
        self.dispatch_batches = bool(self.dispatch_batches)  # None: scripts that leave the choice to us


@dataclass(slots=True)
class ProjectConfiguration(KwargsHandler):
    """Where a run leaves its files.

    With `automatic_checkpoint_naming` states go to `project_dir/checkpoints`, numbered from `iteration`, and at most
    `total_limit` of them are kept.
    """

    project_dir: str | Path | None = None
    logging_dir: str | Path | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        if self.total_limit is not None and self.total_limit < 1:
            raise ConfigError(f"total_limit={self.total_limit} would keep no checkpoint at all; it is at least 1")
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | Path | None = None) -> None:
        """Takes the directory; logs go there too unless they have their own."""
        self.project_dir = project_dir
        self.logging_dir = self.logging_dir if self.logging_dir is not None else project_dir


@dataclass(frozen=True, slots=True)
class TorchDynamoPlugin(KwargsHandler):
    """For `torch.compile`, applied to prepared models last."""

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    options: dict[str, object] | None = None
    disable: bool = False
    use_regional_compilation: bool | None = None

    def __post_init__(self) -> None:
        if text := refused_argument(
            "TorchDynamoPlugin", {"use_regional_compilation": self.use_regional_compilation or None}
        ):
            raise ConfigError(text)
