"""What a run is, as an Accelerator shows it."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from accel_runtime.accumulation import Accumulation
from accel_runtime.bundle import Prepared
from accel_runtime.configuration import DataLoaderConfiguration, ProjectConfiguration, TorchDynamoPlugin
from accel_runtime.errors import UsageError
from accel_runtime.resolve import Session
from accel_runtime.strategies.deepspeed_plugin import DeepSpeedPlugin
from accel_runtime.strategies.fsdp_plugin import FullyShardedDataParallelPlugin
from accel_runtime.unsupported import instead_of_member


class RunProperties:
    """Properties over what was chosen for this run; an Accelerator sets the attributes below."""

    _session: Session
    _accumulation: Accumulation
    _prepared: Prepared
    dataloader_config: DataLoaderConfiguration
    project_configuration: ProjectConfiguration

    @property
    def state(self) -> Any:
        """Scripts ask `accelerator.state` for the processes and the precision; both are known here."""
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached only by what is not there.
        raise AttributeError(instead_of_member(type(self).__name__, name))

    @property
    def is_fsdp2(self) -> bool:
        """Whether the model is sharded by FSDP2."""
        return self._session.strategy.name == "fsdp"

    @property
    def mixed_precision(self) -> str:
        """The precision of this run: "no", "bf16", "fp16", "fp8" or "fp8-emulated"."""
        return self._session.precision.name

    @property
    def native_amp(self) -> bool:
        """Whether forward passes run under torch's autocast."""
        return self.mixed_precision in ("fp16", "bf16")

    @native_amp.setter
    def native_amp(self, used: bool) -> None:
        """Scripts turn it off on devices without autocast: where it is on, that has to be said when it is made."""
        if used != self.native_amp:
            raise UsageError(
                f"native_amp={used} contradicts mixed_precision={self.mixed_precision!r}; make the Accelerator with "
                f"mixed_precision={'a precision' if used else repr('no')} instead"
            )

    @property
    def parallelism_config(self) -> None:
        """A model is divided by its strategy alone."""

    @property
    def torch_device_mesh(self) -> None:
        """A model is divided by its strategy alone."""

    device_mesh = torch_device_mesh

    @property
    def _models(self) -> list[Any]:
        return self._prepared.models

    @property
    def _optimizers(self) -> list[Any]:
        return self._prepared.optimizers

    @property
    def _schedulers(self) -> list[Any]:
        return self._prepared.schedulers

    @property
    def _dataloaders(self) -> list[Any]:
        return self._prepared.loaders

    @property
    def initialized(self) -> bool:
        """True: an Accelerator is ready when it is made."""
        return True

    @property
    def dynamo_plugin(self) -> TorchDynamoPlugin | None:
        """What models are compiled with; None where they are not."""
        return self._prepared.choices.dynamo

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The loss scaler of fp16."""
        return getattr(self._session.precision, "scaler", None)

    @property
    def deepspeed_plugin(self) -> DeepSpeedPlugin | None:
        """What DeepSpeed was chosen with; None under any other strategy."""
        return getattr(self._session.strategy, "deepspeed_plugin", None)

    @property
    def fsdp_plugin(self) -> FullyShardedDataParallelPlugin | None:
        """What the script said about FSDP; None under any other strategy."""
        return getattr(self._session.strategy, "fsdp_plugin", None)

    @property
    def multi_device(self) -> bool:
        """Whether there are several processes, each with an accelerator of its own."""
        return self._session.world.size > 1 and self._session.device.type != "cpu"

    # Accumulation

    @property
    def gradient_state(self) -> Accumulation:
        """Where the current accumulation window stands."""
        return self._accumulation

    def _set_sync_gradients(self, sync: bool) -> None:
        self._accumulation.sync_gradients = sync

    # Asked at every step, and an attrgetter is no Python call.
    sync_gradients: bool = property(  # type: ignore[assignment]
        attrgetter("_accumulation.sync"), _set_sync_gradients, doc="Whether the latest micro-step completed a window."
    )

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-steps of one window; may be set between windows."""
        return self._accumulation.steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self._accumulation.set_steps(steps)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the latest step of any prepared optimizer was left out because of an overflow."""
        return any(optimizer.step_was_skipped for optimizer in self._prepared.optimizers)

    # Data

    @property
    def split_batches(self) -> bool:
        """Whether one batch of the script is sharded over the processes."""
        return self._session.options.split_batches

    @property
    def dispatch_batches(self) -> bool:
        """Whether process 0 reads for all."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether the last round is filled up so that all processes take the same number of batches."""
        return self.dataloader_config.even_batches

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether shuffles depend on the seed and the epoch alone."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether loaders continue in the middle of the epoch after `load_state` by themselves."""
        return self.dataloader_config.use_stateful_dataloader

    @property
    def non_blocking(self) -> bool:
        """Whether copies to the device overlap with computation."""
        return self.dataloader_config.non_blocking

    # Files

    @property
    def project_dir(self) -> str | Path | None:
        """The folder of this run's files; None where none was named."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | Path | None:
        """The folder of the trackers' files; None where none was named."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """The number of the next checkpoint."""
        return self.project_configuration.iteration

    @property
    def should_save_model(self) -> bool:
        """Whether this process writes what is written once: on the whole, or on each machine if so configured."""
        world = self._session.world
        return world.is_local_main if self.project_configuration.save_on_each_node else world.is_main
