"""The public face: an Accelerator, whose short methods delegate to what was chosen for this run."""

from __future__ import annotations

import builtins
import functools
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from accel_runtime.accumulation import Accumulation, Block, GradientAccumulationPlugin
from accel_runtime.bundle import Prepared
from accel_runtime.collectives import Reduction
from accel_runtime.config_file import config_files
from accel_runtime.data.iteration import Iterations
from accel_runtime.data.loader import LoaderSettings
from accel_runtime.errors import ConfigError
from accel_runtime.handlers import Handler, check_handlers
from accel_runtime.metrics import gather_samples
from accel_runtime.optimizer import PreparedOptimizer
from accel_runtime.options import options_from
from accel_runtime.resolve import session_from
from accel_runtime.saving import save_atomically
from accel_runtime.scheduler import PreparedScheduler
from accel_runtime.tree import Tree, place

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Accelerator:
    """Runs one training script on one process or on many.

    >>> accelerator = Accelerator(cpu=True)
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    >>> for inputs, targets in loader:
    ...     loss = loss_of(model(inputs), targets)
    ...     accelerator.backward(loss)
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int | None = None,
        cpu: bool | None = None,
        *,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Iterable[Handler] | None = None,
        autocast_forward: bool = True,
    ) -> None:
        options = options_from(
            os.environ,
            {
                "split_batches": split_batches,
                "mixed_precision": mixed_precision,
                "gradient_accumulation_steps": gradient_accumulation_steps,
                "cpu": cpu,
            },
            [file.layer() for file in config_files(os.environ)],
        )
        if gradient_accumulation_plugin is not None and gradient_accumulation_steps not in (None, 1):
            raise ConfigError("pass gradient_accumulation_steps or gradient_accumulation_plugin, not both")
        plugin = gradient_accumulation_plugin or GradientAccumulationPlugin(options.gradient_accumulation_steps)
        self._session = session_from(options, check_handlers(kwargs_handlers or ()))
        self._device_placement = device_placement
        self._iterations = Iterations()
        strategy = self._session.strategy
        self._accumulation = Accumulation(
            plugin, self._iterations, strategy.defer if strategy.exchanges_gradients else None
        )
        self._prepared = Prepared(
            self._session,
            self._accumulation,
            LoaderSettings(
                self._session.collectives, self._iterations, split=options.split_batches, place=self._placement()
            ),
            autocast_forward=autocast_forward,
            step_scheduler_with_optimizer=step_scheduler_with_optimizer,
        )
        # Looked up once: this is called at every step.
        self._run_backward = self._session.precision.backward

    def _placement(self) -> Callable[[Tree], Tree] | None:
        if self.device.type == "cpu" or not self._device_placement:
            return None
        return functools.partial(place, device=self.device)

    @property
    def device(self) -> torch.device:
        return self._session.device

    @property
    def num_processes(self) -> int:
        return self._session.world.size

    @property
    def process_index(self) -> int:
        return self._session.world.rank

    @property
    def local_process_index(self) -> int:
        return self._session.world.local_rank

    @property
    def is_main_process(self) -> bool:
        return self._session.world.is_main

    @property
    def is_local_main_process(self) -> bool:
        return self._session.world.is_local_main

    @property
    def is_last_process(self) -> bool:
        return self._session.world.is_last

    @property
    def use_distributed(self) -> bool:
        return self.num_processes > 1

    @property
    def mixed_precision(self) -> str:
        return self._session.precision.name

    @property
    def sync_gradients(self) -> bool:
        """Whether the latest micro-step completed a window."""
        return self._accumulation.sync

    @sync_gradients.setter
    def sync_gradients(self, sync: bool) -> None:
        self._accumulation.sync = sync

    @property
    def gradient_accumulation_steps(self) -> int:
        return self._accumulation.steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self._accumulation.set_steps(steps)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the latest step of any prepared optimizer was left out because of an overflow."""
        return any(optimizer.step_was_skipped for optimizer in self._prepared.optimizers)

    def prepare(self, *objects: Any, device_placement: list[bool] | None = None) -> Any:
        """Models, optimizers, loaders and schedulers made ready for this run, in the order given."""
        placed = device_placement or [self._device_placement] * len(objects)
        prepared = self._prepared.prepare(objects, placed)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def prepare_model(
        self, model: Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Module:
        """One model; in `evaluation_mode` its gradients are never exchanged."""
        placed = self._device_placement if device_placement is None else device_placement
        (prepared,) = self._prepared.prepare([model], [placed], evaluation_mode)
        return prepared  # type: ignore[no-any-return]

    def prepare_data_loader(self, data_loader: DataLoader[Any]) -> DataLoader[Any]:
        return self.prepare(data_loader)  # type: ignore[no-any-return]

    def prepare_optimizer(self, optimizer: Optimizer) -> PreparedOptimizer:
        return self.prepare(optimizer)  # type: ignore[no-any-return]

    def prepare_scheduler(self, scheduler: LRScheduler) -> PreparedScheduler:
        return self.prepare(scheduler)  # type: ignore[no-any-return]

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Gradients of the loss, weighed by its share in the accumulation window."""
        divisor = self._accumulation.divisor
        self._run_backward(loss if divisor == 1 else loss / divisor, **kwargs)

    def accumulate(self, *models: Module) -> Block:
        """One micro-step: optimizers and schedulers inside it step only when the window is complete."""
        return self._accumulation.block(models or tuple(self._prepared.models))

    def no_sync(self, model: Module) -> AbstractContextManager[None]:
        """A region whose gradients stay on this process."""
        return self._session.strategy.no_sync(model)

    def autocast(self) -> AbstractContextManager[Any]:
        """The region in which operations run in this run's precision."""
        return self._session.precision.autocast()

    def unscale_gradients(self, optimizer: PreparedOptimizer | None = None) -> None:
        self._session.precision.unscale((optimizer,) if optimizer else tuple(self._prepared.optimizers))

    def clip_grad_norm_(self, parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients down to a norm; returns the norm they had."""
        self._session.precision.unscale(tuple(self._prepared.optimizers))
        return self._session.strategy.clip_norm(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        self._session.precision.unscale(tuple(self._prepared.optimizers))
        self._session.strategy.clip_value(parameters, clip_value)

    def gather(self, tensor: Tree) -> Tree:
        """The tensors of all processes, joined in their first dimension."""
        return self._session.collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Tree, use_gather_object: bool = False) -> Tree:
        """Results for the current batch from all processes, every sample exactly once."""
        return gather_samples(input_data, self._session.collectives, self._iterations.current, use_gather_object)

    def reduce(self, tensor: Tree, reduction: Reduction = "sum", scale: float = 1.0) -> Tree:
        return self._session.collectives.reduce(tensor, reduction, scale)

    def pad_across_processes(self, tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
        return self._session.collectives.pad(tensor, dim, pad_index, pad_first)

    def wait_for_everyone(self) -> None:
        self._session.collectives.barrier()

    def unwrap_model(self, model: Module) -> Module:
        """The model that the user wrote."""
        return self._session.strategy.unwrap(model)

    def get_state_dict(self, model: Module) -> dict[str, Any]:
        """The model's whole state on every process, with the keys of the model that the user wrote."""
        return self._session.strategy.state_dict(model)

    def save(self, obj: Any, f: str | os.PathLike[str]) -> None:
        """`torch.save` on the main process; the file is there whole or not at all."""
        if self.is_main_process:
            save_atomically(obj, Path(f))

    def print(self, *values: Any, **kwargs: Any) -> None:
        """Prints once on each machine."""
        if self.is_local_main_process:
            builtins.print(*values, **kwargs)

    def end_training(self) -> None:
        """Parts the processes that this Accelerator joined."""
        if self._session.owns_group and dist.is_initialized():
            dist.destroy_process_group()
